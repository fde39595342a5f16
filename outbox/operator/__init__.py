"""Carries out operators' commands: guards, previews, decisions under the row's lock, dead letters, pauses, lists."""
