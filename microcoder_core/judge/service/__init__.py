"""The judge as an HTTP service: programs and problems in, judgements out, one line each as they come.

| module     | what it does                                                        |
|------------|---------------------------------------------------------------------|
| `config`   | settings                                                            |
| `requests` | what a request must be, and problems known from earlier ones         |
| `queue`    | how many programs wait, whose turn it is, what is refused            |
| `metrics`  | counts for Prometheus                                               |
| `app`      | the addresses                                                       |
| `server`   | runs it, and ends it without losing an answer                       |

The other side is `microcoder_core.judge.client`.
"""
