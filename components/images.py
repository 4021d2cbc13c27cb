"""Images that components run in on a cluster; the environment may name others when the pipeline is compiled."""

import os

from microcoder_core import __version__

IMAGE_CPU = os.environ.get("MICROCODER_IMAGE_CPU", f"microcoder/cpu:{__version__}")
"""For import, curate, promote and report. Pin it by digest on a cluster: KFP's cache key holds the image's name as a string."""

IMAGE_GPU = os.environ.get("MICROCODER_IMAGE_GPU", f"microcoder/gpu:{__version__}")
"""For probe, train and evaluate."""
