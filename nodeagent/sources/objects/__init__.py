"""The API's objects: as they come, and decoded into the model's values. Pure."""
