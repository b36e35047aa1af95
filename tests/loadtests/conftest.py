"""Settings of these tests: a busy machine is no failure of a property."""

from hypothesis import settings

settings.register_profile("tailgate", deadline=None)
settings.load_profile("tailgate")
