"""One end of the BitTorrent load: `home` is the client on the home's machine,
`far` all other peers of the swarm, each a libtorrent session of its own with an
address of its own.

The torrent's content is zeros, so nothing has to be made or kept: the home has
the first half of the pieces and the others have the second, and each wants what
it lacks. Everything else is libtorrent's default but for what looks for peers
by itself (DHT, local discovery, UPnP): the home is told who they are.
"""

import ctypes
import hashlib
import json
import os
import sys
import threading
import time

import libtorrent as lt

PIECE = 256 << 10
PORT = 6881


def torrent_info(pieces):
    """The torrent of so many pieces of zeros."""
    info = {
        b"name": b"zeros",
        b"piece length": PIECE,
        b"length": pieces * PIECE,
        b"pieces": hashlib.sha1(bytes(PIECE)).digest() * pieces,
    }
    return lt.torrent_info(lt.bdecode(lt.bencode({b"info": info})))


def settings(address, transport):
    utp = transport == "utp"
    return {
        "listen_interfaces": "%s:%d" % (address, PORT),
        "enable_dht": False,
        "enable_lsd": False,
        "enable_upnp": False,
        "enable_natpmp": False,
        "enable_incoming_utp": utp,
        "enable_outgoing_utp": utp,
        "enable_incoming_tcp": not utp,
        "enable_outgoing_tcp": not utp,
        "connection_speed": 200,
        "alert_mask": 0,
        "aio_threads": 1,
        "hashing_threads": 1,
    }


def join(address, config, ti, has_first_half):
    """A session that has one half of the torrent."""
    session = lt.session(settings(address, config["transport"]))
    params = lt.add_torrent_params()
    params.ti = ti
    params.save_path = config["dir"]
    half = ti.num_pieces() // 2
    params.have_pieces = [(i < half) == has_first_half for i in range(ti.num_pieces())]
    params.flags &= ~(lt.torrent_flags.paused | lt.torrent_flags.auto_managed)
    params.flags |= lt.torrent_flags.disable_dht | lt.torrent_flags.disable_lsd | lt.torrent_flags.disable_pex
    return session, session.add_torrent(params)


def forget(path, length):
    """Gives back the memory of what was written: it is zeros, as holes are."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    libc = ctypes.CDLL(None, use_errno=True)
    punch = 0x01 | 0x02  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
    if libc.fallocate(fd, punch, ctypes.c_long(0), ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate " + path)
    os.close(fd)


def sample(handles, config, length, stopped):
    """The payload that arrived, in bins, until stopped() says so."""
    path = os.path.join(config["dir"], "zeros")
    step = config["bin_ms"] / 1e3
    start, bins, last, n = time.time_ns(), [], 0, 0
    begin = time.monotonic()
    while not stopped(time.monotonic() - begin):
        n += 1
        time.sleep(max(0.0, begin + n * step - time.monotonic()))
        total = sum(h.status().total_payload_download for h in handles)
        bins.append(total - last)
        last = total
        if n % 8 == 0:
            forget(path, length)
    return {"Start": start, "Bin": int(step * 1e9), "Bytes": bins}


def main():
    role, config = sys.argv[1], json.loads(sys.argv[2])
    os.makedirs(config["dir"], exist_ok=True)
    ti = torrent_info(config["pieces"])
    length = ti.total_size()
    path = os.path.join(config["dir"], "zeros")
    with open(path, "ab") as f:
        f.truncate(length)
    if role == "far":
        swarm = [join(a, config, ti, False) for a in config["peers"]]
        handles = [h for _, h in swarm]
        while any(h.status().state in (lt.torrent_status.checking_files, lt.torrent_status.checking_resume_data) for h in handles):
            time.sleep(0.05)
        print("ready", flush=True)
        sys.stdin.readline()
        over = threading.Event()
        threading.Thread(target=lambda: (sys.stdin.readline(), over.set()), daemon=True).start()
        result = sample(handles, config, length, lambda _: over.is_set())
        have = [s.num_peers for s in (h.status() for h in handles)]
        print(json.dumps({"series": result, "connected": sum(1 for n in have if n > 0)}), flush=True)
    else:
        session, handle = join(config["address"], config, ti, True)
        while handle.status().state in (lt.torrent_status.checking_files, lt.torrent_status.checking_resume_data):
            time.sleep(0.05)
        print("ready", flush=True)
        sys.stdin.readline()
        for a in config["peers"]:
            handle.connect_peer((a, PORT))
        result = sample([handle], config, length, lambda t: t >= config["seconds"])
        s = handle.status()
        print(json.dumps({"series": result, "connected": s.num_peers, "error": s.errc.message() if s.errc.value() else ""}), flush=True)
    os._exit(0)


main()
