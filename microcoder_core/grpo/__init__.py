"""MicroCoder-GRPO: advantage, mask, loss, schedule, batches, checkpoints, trainer. One file a part."""
