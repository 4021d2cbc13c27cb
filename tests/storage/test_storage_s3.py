"""The S3 store against moto's server in a process of its own."""

import importlib.util
import io
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from minio import Minio

from microcoder_core.cli.doctor import examine
from microcoder_core.errors import DamageError, InputError, StorageError
from microcoder_core.storage.s3 import COMPLETE_MARKER, FolderStore
from microcoder_core.storage.s3_address import S3Address, parse_s3_address
from microcoder_core.storage.s3_connection import connect
from tests.storage.s3_servers import free_port, moto_server, proxy_before

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
PART_BYTES = 5 * 1024 * 1024
"""The least that a server takes."""
buckets = (f"bucket-{number}" for number in itertools.count())


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    if importlib.util.find_spec("moto") is None and not os.environ.get("CI"):
        pytest.skip("moto[server] is not installed")
    with moto_server(tmp_path_factory.mktemp("moto") / "log") as url:
        yield url


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    for name in os.environ:
        if name.startswith(("AWS_", "MLFLOW_S3")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://127.0.0.1:{free_port()}")  # no machine's role
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def bucket(server, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    name = next(buckets)
    Minio(server.removeprefix("http://"), *CREDENTIALS.values(), secure=False).make_bucket(name)
    return name


@pytest.fixture
def store(bucket):
    return FolderStore(f"s3://{bucket}/runs/a")


@pytest.fixture
def proxied(server, bucket):
    """A store behind a proxy, and the proxy."""
    with proxy_before(server) as (url, proxy):
        client = connect(url, patience_s=3)
        yield FolderStore(f"s3://{bucket}/runs/a", client), proxy
        client._http.clear()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder whose largest file takes three parts."""
    monkeypatch.setattr("microcoder_core.storage.s3_transfer.PART_BYTES", PART_BYTES)
    folder = tmp_path / "folder"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "state.json").write_text("{}")
    (folder / "empty").touch()
    (folder / "deep" / "er" / "a b+c é%.bin").write_bytes(os.urandom(1000))
    (folder / "large.bin").write_bytes(os.urandom(2 * PART_BYTES + 12345))
    return folder


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def keys(store, prefix=""):
    entries = store._client.list_objects(store.address.bucket, prefix=store.address.key(prefix), recursive=True)
    return [entry.object_name for entry in entries]


def put(store, key, data):
    store._client.put_object(store.address.bucket, store.address.key(key), io.BytesIO(data), len(data))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("s3://bucket/a/b/", S3Address("bucket", "a/b")),
        ("s3://bucket", S3Address("bucket")),
        ("minio://bucket/a", S3Address("bucket", "a")),
    ],
)
def test_address(text, address):
    assert parse_s3_address(text) == address
    assert parse_s3_address(str(address)) == address


@pytest.mark.parametrize(
    "text", ["", "bucket/a", "s3:/bucket", "s3://", "s3://B/a", "s3://bucket//a", "s3://bucket/a/../b", "https://bucket/a"]
)
def test_address_that_is_none(text):
    with pytest.raises(InputError, match="store: "):
        parse_s3_address(text)


def test_round_trip(store, folder, tmp_path):
    store.check()
    assert store.names() == []
    store.upload_folder(folder, "step-000002")
    store.upload_folder(folder, "step-000001")
    assert store.names() == ["step-000001", "step-000002"]
    store.download_folder("step-000001", tmp_path / "back")
    assert contents(tmp_path / "back") == contents(folder)
    store.delete_folder("step-000001")
    assert store.names() == ["step-000002"]
    assert keys(store, "step-000001") == []


def test_bucket_without_prefix(bucket, folder, tmp_path):
    store = FolderStore(f"s3://{bucket}")
    (folder / "large.bin").unlink()
    store.upload_folder(folder, "a")
    store.write_text("b", "b")
    put(store, f"not a name/{COMPLETE_MARKER}", b"{}")
    assert store.names() == ["a"]
    store.download_folder("a", tmp_path / "back")
    assert contents(tmp_path / "back") == contents(folder)


def test_texts(store):
    assert store.read_text("state.json") is None
    store.write_text("state.json", "één")
    store.write_text("state.json", "twee")
    assert store.read_text("state.json") == "twee"
    assert store.names() == []
    store.delete_text("state.json")
    store.delete_text("state.json")
    assert store.read_text("state.json") is None


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden"])
def test_name_that_is_none(store, name):
    with pytest.raises(InputError, match="name: "):
        store.delete_folder(name)


def test_new_upload_takes_the_place_of_the_old(store, folder, tmp_path):
    store.upload_folder(folder, "a")
    (folder / "large.bin").unlink()
    (folder / "state.json").write_text("new")
    store.upload_folder(folder, "a")
    store.download_folder("a", tmp_path / "back")
    assert contents(tmp_path / "back") == contents(folder)
    assert not [key for key in keys(store) if "large" in key]


@pytest.mark.parametrize("objects", range(4))
def test_interrupted_upload_is_not_complete_and_a_second_one_mends_it(store, folder, tmp_path, monkeypatch, objects):
    (folder / "large.bin").write_bytes(b"small")
    store.upload_folder(folder, "a")
    put_object, count = store._client.put_object, itertools.count()

    def interrupted(*arguments, **options):
        if next(count) == objects:
            raise KeyboardInterrupt
        return put_object(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(store._client, "put_object", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.upload_folder(folder, "a")
    assert len(keys(store)) == objects
    assert store.names() == []
    with pytest.raises(InputError, match="holds no complete folder"):
        store.download_folder("a", tmp_path / "back")
    store.upload_folder(folder, "a")
    store.download_folder("a", tmp_path / "back")
    assert contents(tmp_path / "back") == contents(folder)


def test_killed_upload_of_a_large_file_is_forgotten_by_the_next(server, proxied, folder):
    store, proxy = proxied
    program = f"""
from pathlib import Path
from microcoder_core.storage import s3_transfer
from microcoder_core.storage.s3 import FolderStore
s3_transfer.PART_BYTES = {PART_BYTES}
FolderStore({str(store.address)!r}).upload_folder(Path({str(folder)!r}), "a")
"""
    environment = {**os.environ, "AWS_ENDPOINT_URL": f"http://{store._client._base_url.host}"}
    proxy.fault = lambda method, path: 503 if "partNumber=3" in path else None
    process = subprocess.Popen([sys.executable, "-c", program], env=environment)
    deadline = time.monotonic() + 30
    while not any("partNumber=3" in path for _, path in proxy.seen):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    proxy.fault = lambda method, path: None
    assert len(unfinished(store)) == 1
    assert store.names() == []
    store.upload_folder(folder, "a")
    assert store.names() == ["a"]
    assert unfinished(store) == []


def unfinished(store):
    return store._client._list_multipart_uploads(store.address.bucket).uploads


def test_failed_upload_of_a_large_file_leaves_no_parts(proxied, folder):
    store, proxy = proxied
    proxy.fault = lambda method, path: 503 if "partNumber=2" in path else None
    with pytest.raises(StorageError, match=r"fails with HTTP status 503 \(\d+ attempts\); see the server's log"):
        store.upload_folder(folder, "a")
    assert unfinished(store) == []
    assert store.names() == []


def test_deletion_that_is_interrupted_leaves_no_complete_folder(store, folder, monkeypatch):
    store.upload_folder(folder, "a")

    def interrupted(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store._client, "remove_objects", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.delete_folder("a")
    assert len(keys(store)) == 4
    assert store.names() == []
    store.delete_folder("a")
    assert keys(store) == []


@pytest.mark.parametrize("is_made", [True, False])
def test_answer_lost_when_the_parts_become_one_object(proxied, folder, is_made):
    store, proxy = proxied
    answers = iter(["drop", "NoSuchUpload"] if is_made else ["NoSuchUpload"])
    proxy.fault = lambda method, path: next(answers) if method == "POST" and "uploadId" in path else None
    if is_made:
        store.upload_folder(folder, "a")
        assert store.names() == ["a"]
    else:
        with pytest.raises(StorageError, match=r"/a/large.bin: is missing, instead of the \d+ bytes of what was sent"):
            store.upload_folder(folder, "a")
        assert store.names() == []


@pytest.mark.parametrize("damage", ["byte", "short", "missing", "marker"])
def test_damage_is_an_error_that_names_the_object(store, folder, tmp_path, damage):
    store.upload_folder(folder, "a")
    large = bytearray((folder / "large.bin").read_bytes())
    large[PART_BYTES + 7] ^= 1
    if damage == "byte":
        put(store, "a/large.bin", bytes(large))
    elif damage == "short":
        put(store, "a/large.bin", bytes(large[:-1]))
    elif damage == "missing":
        store._client.remove_object(store.address.bucket, store.address.key("a/large.bin"))
    else:
        put(store, f"a/{COMPLETE_MARKER}", b"{")
    name = COMPLETE_MARKER if damage == "marker" else "large.bin"
    with pytest.raises(DamageError, match=f"^{store.address}/a/{name}: "):
        store.download_folder("a", tmp_path / "back")
    assert sorted(os.listdir(tmp_path)) == ["folder"]


@pytest.mark.parametrize("file", ["../evil", "/evil", "a/../../evil", ""])
def test_marker_that_leads_outside_the_folder_is_refused(store, tmp_path, file):
    put(store, f"a/{COMPLETE_MARKER}", json.dumps({"version": 1, "files": {file: {"size": 1, "sha256": "0"}}}).encode())
    with pytest.raises(DamageError, match="names a file outside"):
        store.download_folder("a", tmp_path / "back")


def test_download_replaces_nothing(store, folder, tmp_path):
    with pytest.raises(InputError, match="is there already"):
        store.download_folder("a", folder)


@pytest.mark.parametrize("kind", ["absent", "empty", "link", "marker"])
def test_folder_that_cannot_be_uploaded(store, tmp_path, kind):
    folder = tmp_path / "folder"
    if kind != "absent":
        folder.mkdir()
    if kind == "link":
        (folder / "link").symlink_to(tmp_path / "nowhere")
    if kind == "marker":
        (folder / COMPLETE_MARKER).touch()
    with pytest.raises(InputError, match=f"^{folder}"):
        store.upload_folder(folder, "a")


def test_file_that_grows_during_the_upload(store, folder, monkeypatch):
    put_part = store._client._upload_part

    def grow(*arguments):
        with (folder / "large.bin").open("ab") as stream:
            stream.write(b"more")
        return put_part(*arguments)

    monkeypatch.setattr(store._client, "_upload_part", grow)
    with pytest.raises(StorageError, match=r"large.bin: changed while it was uploaded"):
        store.upload_folder(folder, "a")
    assert store.names() == []


def test_file_that_goes_away_during_the_upload(store, folder, monkeypatch):
    put_part = store._client._upload_part

    def remove(*arguments):
        (folder / "state.json").unlink(missing_ok=True)
        return put_part(*arguments)

    monkeypatch.setattr(store._client, "_upload_part", remove)
    with pytest.raises(StorageError, match=r"state.json: was removed before it was uploaded"):
        store.upload_folder(folder, "a")
    assert store.names() == []


def test_no_such_bucket(bucket, folder):
    store = FolderStore("s3://no-such-bucket/a")
    for action in (store.check, store.names, lambda: store.upload_folder(folder, "a"), lambda: store.read_text("a")):
        with pytest.raises(InputError, match=r"^s3://no-such-bucket/a\S*: no such bucket; make it"):
            action()


def test_access_denied(proxied):
    store, proxy = proxied
    proxy.fault = lambda method, path: 403
    with pytest.raises(InputError, match="access denied; let the policy"):
        store.check()


@pytest.mark.parametrize("absent", [["AWS_ACCESS_KEY_ID"], ["AWS_SECRET_ACCESS_KEY"], list(CREDENTIALS)])
def test_missing_credentials(bucket, monkeypatch, absent):
    for name in absent:
        monkeypatch.delenv(name)
    message = "no S3 credentials: set AWS_ACCESS_KEY_ID and" if len(absent) == 2 else f"{absent[0]}: is not set"
    with pytest.raises(InputError, match=message):
        FolderStore(f"s3://{bucket}/a")


def test_credentials_from_the_file(bucket, monkeypatch, tmp_path):
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    (tmp_path / "none").write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
    FolderStore(f"s3://{bucket}/a").check()


IDENTITY = b"""<Answer><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>a</AccessKeyId><SecretAccessKey>b</SecretAccessKey>
<SessionToken>c</SessionToken><Expiration>2999-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult></Answer>"""


@pytest.fixture
def identity(monkeypatch, tmp_path):
    """A web identity in the place of keys; the server that grants it is yet to come."""
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    (tmp_path / "token").write_text("token")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))


@pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")  # minio's
def test_credentials_of_a_web_identity(identity, bucket, server, monkeypatch):
    monkeypatch.setattr("tests.storage.s3_servers._Handler._ask", lambda self, body: (200, [], IDENTITY))
    with proxy_before(server) as (url, proxy):
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
        FolderStore(f"s3://{bucket}/a").check()
    ((method, path),) = proxy.seen
    assert (method, "WebIdentityToken=token" in path) == ("POST", True)


def test_web_identity_that_is_not_granted(identity, bucket, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(InputError, match=r"^no S3 credentials: set .*role: .*refused.*\)$"):
        FolderStore(f"s3://{bucket}/a")


@pytest.mark.parametrize("url", ["127.0.0.1:9", "ftp://a", "http://", "http://host/path", "http://user:secret@host"])
def test_endpoint_that_is_none(monkeypatch, url):
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
    with pytest.raises(InputError, match="AWS_ENDPOINT_URL_S3: must be http://HOST") as error:
        FolderStore("s3://bucket/a")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("kind", ["refused", "unknown"])
def test_unreachable_server_is_said_soon(monkeypatch, kind):
    url = f"http://127.0.0.1:{free_port()}" if kind == "refused" else "http://no-such-host.invalid"
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    start = time.monotonic()
    with pytest.raises(StorageError, match=f"^{url}: cannot be reached .*; check the address") as error:
        FolderStore("s3://bucket/a").names()
    assert time.monotonic() - start < 15
    assert len(str(error.value)) < 300


@pytest.mark.slow
def test_silent_server_is_said_soon(monkeypatch):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{listener.getsockname()[1]}")
        start = time.monotonic()
        with pytest.raises(StorageError, match=r"cannot be reached .*timed out"):
            FolderStore("s3://bucket/a").names()
    assert time.monotonic() - start < 15


def test_what_answers_is_no_s3_server(proxied, monkeypatch):
    store, _ = proxied
    monkeypatch.setattr("tests.storage.s3_servers._Handler._ask", lambda self, body: (200, [("Content-Type", "text/html")], b"<html><br>"))
    with pytest.raises(StorageError, match="check the endpoint"):
        store.names()


def once(fault, failed):
    """A fault of the first request of each kind."""

    def decide(method, path):
        if (method, path) in failed:
            return None
        failed.add((method, path))
        return fault

    return decide


@pytest.mark.parametrize("fault", [503, "drop"])
def test_failing_requests_are_tried_again(proxied, folder, tmp_path, fault):
    store, proxy = proxied
    store.names()
    failed = set()
    proxy.fault = once(fault, failed)
    store.upload_folder(folder, "a")
    assert store.names() == ["a"]
    store.download_folder("a", tmp_path / "back")
    assert contents(tmp_path / "back") == contents(folder)
    assert len(failed) > 15


@pytest.mark.parametrize("status", [429, 500, 502, 504])
def test_statuses_that_are_tried_again(proxied, status):
    store, proxy = proxied
    proxy.fault = once(status, set())
    store.write_text("a", "a")
    assert store.read_text("a") == "a"
    assert len(proxy.seen) == 6  # the bucket's location, the text, the text back: each twice


def test_answers_that_break_off_are_gone_on_with(proxied, folder, tmp_path):
    store, proxy = proxied
    store.upload_folder(folder, "a")
    count = itertools.count()
    proxy.fault = lambda method, path: "cut" if "list-type" not in path and next(count) % 2 == 0 else None
    store.download_folder("a", tmp_path / "back")
    assert contents(tmp_path / "back") == contents(folder)


def test_doctor_tries_a_store(store, server):
    findings = examine(str(store.address))
    assert findings["s3"] == {"variable": "AWS_ENDPOINT_URL", "address": server, "reachable": True}
    assert findings["store"] == {"address": str(store.address), "problem": None}
    assert keys(store) == []
    assert examine("s3://no-such-bucket")["store"]["problem"].startswith("s3://no-such-bucket: no such bucket")
    assert examine("no-address")["store"]["problem"].startswith("store: must be s3://BUCKET/PREFIX")


def test_address_needs_no_client():
    program = (
        "import sys, microcoder_core.storage.s3_address\nprint([name for name in ('minio', 'urllib3', 'pydantic') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


MEASURED = """
import re, sys, time
from pathlib import Path
from microcoder_core.storage.s3 import FolderStore

def peak_kib():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

store = FolderStore(sys.argv[1])
store.check()
before = peak_kib()
start = time.monotonic()
store.upload_folder(Path(sys.argv[2]), "a")
middle = time.monotonic()
store.download_folder("a", Path(sys.argv[3]))
end = time.monotonic()
print((peak_kib() - before) / 1024, middle - start, end - middle, "torch" in sys.modules)
"""


@pytest.mark.slow
def test_large_file_takes_little_memory(store, tmp_path):
    (tmp_path / "folder").mkdir()
    megabytes = 200
    with (tmp_path / "folder" / "model").open("wb") as stream:
        for _ in range(megabytes):
            stream.write(os.urandom(1_000_000))
    command = [sys.executable, "-c", MEASURED, str(store.address), str(tmp_path / "folder"), str(tmp_path / "back")]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    mebibytes, up_s, down_s = map(float, output[:3])
    assert mebibytes < 130
    assert max(up_s, down_s) < megabytes / 10
    assert output[3] == "False"
