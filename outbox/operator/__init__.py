"""What operators do and look at: guards, previews, decisions under the row's lock, dead letters, pauses, lists."""
