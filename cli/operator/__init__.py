"""What the operator's commands share: reading a case, the preview of each action, the decision, the timeline."""
