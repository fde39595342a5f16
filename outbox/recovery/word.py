"""Whether "not executed" is only an operator's word: one rule for redrives and for what recovery takes back."""

# For a row `o`. The last word about what was sent under this key: a verdict of the reconciler's proves, an operator's
# does not.
ON_WORD = """coalesce((SELECT e.kind = 'resolved_failed' AND NOT e.details ? 'new_provider_key'
                   FROM idem.evidence e
                  WHERE e.intent_id = o.intent_id AND e.outbox_id = o.id
                    AND (e.kind = 'resolved_failed' OR e.details ? 'new_provider_key'
                         OR e.source = 'reconciler' AND e.from_status = 'unknown' AND e.to_status = 'held')
                  ORDER BY e.at DESC, e.id DESC LIMIT 1), false)"""
