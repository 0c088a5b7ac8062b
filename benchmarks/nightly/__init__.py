"""A nightly job from end to end, and what kills it."""
