"""The API's objects: as received, and decoded into the model's values. Pure."""
