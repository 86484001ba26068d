"""What the wheel's agent does with a client's answers, and with its options: no Mooncake, the client is a double."""
import array
import ctypes
import importlib.machinery
import importlib.util
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True


def load_agent():
    loader = importlib.machinery.SourceFileLoader("agent", str(ROOT / "agents/forebay-agent-mooncake"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("agent", loader))
    loader.exec_module(module)
    return module


agent = load_agent()


class Left(BaseException):
    """Stands for the end of the process."""


def leave(code):
    raise Left(code)


class Double:
    """A client that gives prepared results and remembers what it was asked."""

    def __init__(self, results=None, error=None):
        self.results, self.error, self.asked, self.registered = results, error, [], []

    def answer(self, *arguments):
        self.asked.append(arguments)
        if self.error:
            raise self.error
        return list(self.results[:len(arguments[0])])

    batch_is_exist = batch_remove = batch_get_into = batch_put_from = answer

    def is_exist(self, key):
        return self.results[0]

    def register_buffer(self, address, size):
        self.registered.append(("+", address, size))

    def unregister_buffer(self, address):
        self.registered.append(("-", address))


class Batch:
    """One batch as the library hands it over: arrays at fixed addresses."""

    def __init__(self, op, keys, addresses=(), sizes=(), depth=2048):
        text = "\n".join(keys).encode()
        self.text = ctypes.create_string_buffer(text, len(text) + 1)
        self.arrays = [(ctypes.c_uint64 * depth)(*values) for values in (addresses, sizes, ())]
        self.health = ctypes.create_string_buffer(256)
        at, size, result = (ctypes.addressof(each) for each in self.arrays)
        self.flat = agent.Flat(op=op, count=len(keys), duplicates=len(set(keys)) < len(keys), keys_bytes=len(text),
                               keys=ctypes.addressof(self.text), addresses=at, sizes=size, results=result,
                               text=ctypes.addressof(self.health))

    def results(self):
        return array.array("q", bytes(self.arrays[2]))[:max(self.flat.count, 1)].tolist()


def serve(client, op, keys, addresses=(), sizes=(), prefix=""):
    batch = Batch(op, keys, addresses, sizes)
    calls = agent.Calls(client, "settings", "m:1", range(1 << 47), leave)
    agent.Lane(calls, prefix, 2048).serve(batch.flat)
    return batch.results()


class Answers(unittest.TestCase):
    def test_of_a_get_are_bytes_or_codes(self):
        client = Double([100, 60, 200, -704, -703, -600, -707, -801, -900, -901])
        sizes = [100] * 10
        self.assertEqual(serve(client, agent.GET, [f"k{i}" for i in range(10)], range(1000, 1010), sizes),
                         [100, -2003, -2003, -2001, -2002, -2003, -2005, -2004, -2007, -2006])

    def test_of_a_put_are_the_bytes_given_or_codes(self):
        client = Double([0, -200, -705, -1700, -800])
        self.assertEqual(serve(client, agent.PUT, list("abcde"), range(5), [7] * 5), [7, -2008, -2009, -2008, -2007])
        self.assertEqual(client.asked, [(list("abcde"), [0, 1, 2, 3, 4], [7] * 5, "settings")])

    def test_of_a_query_and_a_removal(self):
        self.assertEqual(serve(Double([1, 0, -900]), agent.EXISTS, list("abc")), [1, 0, -2007])
        self.assertEqual(serve(Double([0, -704, -706]), agent.REMOVE, list("abc")), [0, -2001, -2005])

    def test_of_a_health_question(self):
        for code, result, text in (0, 0, "Mooncake's master m:1 answers"), (-901, -2006, "does not answer (-901)"):
            batch = Batch(agent.HEALTH, [])
            agent.Lane(agent.Calls(Double([code]), None, "m:1", range(0), leave), "", 2048).serve(batch.flat)
            self.assertEqual(batch.results(), [result])
            self.assertIn(text, batch.health.value.decode())

    def test_a_prefix_stands_before_every_key(self):
        client = Double([1, 1])
        serve(client, agent.EXISTS, ["a", "b"], prefix="p/")
        self.assertEqual(client.asked, [(["p/a", "p/b"],)])

    def test_more_than_1024_keys_go_in_pieces(self):
        client = Double([1] * 1024)
        self.assertEqual(serve(client, agent.EXISTS, [str(i) for i in range(2048)]), [1] * 2048)
        self.assertEqual([len(keys) for keys, in client.asked], [1024, 1024])


class Duplicates(unittest.TestCase):
    def test_are_read_once_and_copied(self):
        first, second = ctypes.create_string_buffer(b"abc", 3), ctypes.create_string_buffer(3)
        addresses = [ctypes.addressof(first), 5, ctypes.addressof(second)]
        client = Double([3, -704])
        self.assertEqual(serve(client, agent.GET, ["x", "y", "x"], addresses, [3, 3, 3]), [3, -2001, 3])
        self.assertEqual((client.asked, second.raw), ([(["x", "y"], addresses[:2], [3, 3])], b"abc"))

    def test_of_a_missing_key_are_all_missing(self):
        self.assertEqual(serve(Double([-704]), agent.GET, ["x", "x"], [8, 16], [3, 3]), [-2001, -2001])


class Doubt(unittest.TestCase):
    """A transfer that may go on ends the process: nothing is answered."""

    def setUp(self):
        self.now, self.monotonic = 0.0, agent.time.monotonic
        agent.time.monotonic = lambda: self.now
        self.log, agent.log = agent.log, lambda text: None

    def tearDown(self):
        agent.time.monotonic, agent.log = self.monotonic, self.log

    def get(self, client, seconds):
        answer = client.batch_get_into

        def slow(*arguments):
            self.now += seconds
            return answer(*arguments)

        client.batch_get_into = slow
        return serve(client, agent.GET, ["x", "y"], [8, 16], [3, 3])

    def test_a_transfer_that_failed_soon_had_ended(self):
        self.assertEqual(self.get(Double([3, -800]), 1.1), [3, -2007])

    def test_a_transfer_that_failed_by_the_client_s_own_limit_goes_on(self):
        with self.assertRaises(Left):
            self.get(Double([3, -800]), 60)

    def test_an_error_that_nobody_knows_goes_on(self):
        for op in agent.GET, agent.PUT:
            with self.assertRaises(Left):
                serve(Double([3, -12345]), op, ["x", "y"], [8, 16], [3, 3])

    def test_whatever_the_client_throws_goes_on(self):
        for error in MemoryError("none"), ValueError("wrong"), IndexError("beyond"):
            with self.assertRaises(Left):
                self.get(Double(error=error), 0)

    def test_an_error_without_a_cause_goes_on(self):
        with self.assertRaises(Left):
            self.get(Double([3, -1]), 0)

    def test_an_exception_of_the_client_in_the_middle_of_a_read_goes_on(self):
        with self.assertRaises(Left):
            self.get(Double(error=RuntimeError("thrown")), 0)

    def test_an_exception_in_a_query_fails_the_batch_only(self):
        self.assertEqual(serve(Double(error=RuntimeError("thrown")), agent.EXISTS, ["x", "y"]), [-2010, -2010])


class Bounce(unittest.TestCase):
    def test_a_buffer_outside_of_the_pool_is_registered_for_its_call(self):
        client, batch = Double([3]), Batch(agent.GET, ["x"], [4096], [3])
        agent.Lane(agent.Calls(client, None, "m:1", range(0, 4096), leave), "", 2048).serve(batch.flat)
        self.assertEqual((batch.results(), client.registered), ([3], [("+", 4096, 3), ("-", 4096)]))


class Options(unittest.TestCase):
    def refused(self, text, *options):
        with self.assertRaises(agent.Failure) as caught:
            agent.parse_options(options)
        self.assertEqual(caught.exception.code, agent.E_CONFIG)
        self.assertIn(text, str(caught.exception))

    def test_have_defaults(self):
        options, environment = agent.parse_options([])
        self.assertEqual((options["master"], options["metadata"], options["lease_ms"], environment),
                         ("127.0.0.1:50051", "P2PHANDSHAKE", "5000", {}))

    def test_a_later_one_wins(self):
        self.assertEqual(agent.parse_options(["master=a:1", "master=b:2"])[0]["master"], "b:2")

    def test_name_variables(self):
        self.assertEqual(agent.parse_options(["env.MC_X=a=b"])[1], {"MC_X": "a=b"})

    def test_that_are_wrong_are_named(self):
        self.refused("'colour=red' is not an option of it", "colour=red")
        self.refused("option master is 'nowhere'; accepted: HOST:PORT", "master=nowhere")
        self.refused("option protocol is 'smoke'; accepted: tcp, rdma", "protocol=smoke")
        self.refused("option local_buffer is '5 parsecs'", "local_buffer=5 parsecs")
        self.refused("option replicas is '17'", "replicas=17")
        self.refused("option prefix is", "prefix=" + "x" * 65)

    def test_sizes(self):
        self.assertEqual([agent.size_of(text) for text in ("0", "5", "64MiB", "3KB")], [0, 5, 64 << 20, 3000])

    def test_addresses(self):
        self.assertEqual(agent.host_and_port("h:1"), ("h", 1))
        self.assertEqual(agent.host_and_port("[::1]:50051"), ("::1", 50051))
        self.assertIsNone(agent.host_and_port("etcd://a:1"))
        self.assertEqual(agent.own_hostname(("127.0.0.1", 1)), "127.0.0.1")


class Layout(unittest.TestCase):
    def test_is_that_of_the_headers(self):
        self.assertEqual((ctypes.sizeof(agent.Caps), ctypes.sizeof(agent.Flat)), (40, 72))


if __name__ == "__main__":
    unittest.main(verbosity=2)
