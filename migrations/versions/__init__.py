"""The revisions: `0001_baseline` makes the whole schema from the SQL files beside it, in the order that it lists."""
