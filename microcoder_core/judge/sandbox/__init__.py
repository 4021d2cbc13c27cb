"""What runs inside the sandbox: a zygote process and the children it forks, one a test.

Standard library only, and imported by the zygote under the name `sandbox`: nothing here may import `microcoder_core`. The zygote
sees neither programs nor inputs nor outputs: they travel in file descriptors that the child alone reads, so that no program finds
what an earlier one left behind.
"""
