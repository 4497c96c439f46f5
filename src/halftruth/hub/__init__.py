"""Share a run: a folder with a model card, the Hugging Face Hub, and the layout of timm."""

from halftruth.extras import needs_extras

with needs_extras("halftruth.hub"):
    from halftruth.hub.hub_folder import HubError, download, push, write_hub_folder
    from halftruth.hub.model_card import make_model_card
    from halftruth.hub.timm_layout import write_timm_model

__all__ = [
    "HubError",
    "download",
    "make_model_card",
    "push",
    "write_hub_folder",
    "write_timm_model",
]
