"""idem: an effect in somebody else's system happens once, and idem knows when it cannot know."""
