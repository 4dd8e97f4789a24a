#!/usr/bin/env python3
"""bench/serve.py PROGRAM [--llama LLAMA_SERVER] [--rounds N]: what the server costs, on the bundled pair.

In each round, taking turns, because machines drift:
  serve     `bench serve` with several clients on a fresh `foresay serve`;
  engine    `bench batch`: as many requests of the same sizes, as many at once, without a server. All come at the
            beginning, and the rate is that of the whole run, prompts included, as it is for clients;
  llama     `bench serve` on a fresh llama-server (built elsewhere), with as many threads, if one is given;
  complete  one request to `foresay serve`, and the same prompt and seed to `foresay complete`: tokens per second from the
            prompt to the last token.
Prints medians over the rounds, and the medians of the ratios within a round. Then the processor time that 64
connections take which ask nothing, and that of 64 streams which are open and stand still, as no client reads them.
Run it on a quiet machine, or say that it was none.
"""

import argparse
import atexit
import http.client
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

MODEL = Path(__file__).resolve().parent.parent / 'models/python-coder/target-q4_k_m.gguf'
IN, OUT, TEMPERATURE = 200, 200, 0.6
SINGLE = 3  # requests of a round that `complete` answers, too


class Server:
    def __init__(self, command, port=None):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        atexit.register(self.process.kill)  # where something goes wrong before end()
        self.port = port
        if port is None:
            for line in self.process.stdout:
                found = re.search(r'listening on http://127\.0\.0\.1:(\d+)', line)
                self.port = int(found[1]) if found else self.port
                if line.startswith('model '):
                    return
        else:
            # Read by nobody, a pipe would fill.
            subprocess.Popen(['cat'], stdin=self.process.stdout, stdout=subprocess.DEVNULL)
            while self.process.poll() is None:
                try:
                    with socket.create_connection(('127.0.0.1', port), 1):
                        connection = http.client.HTTPConnection('127.0.0.1', port, timeout=5)
                        connection.request('GET', '/health')
                        if connection.getresponse().status == 200:
                            return
                except OSError:
                    pass
                time.sleep(0.1)
        raise SystemExit(f'{command[0]} did not start')

    def url(self):
        return f'http://127.0.0.1:{self.port}'

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def ticks(self):
        fields = Path(f'/proc/{self.process.pid}/stat').read_text().rpartition(') ')[2].split()
        return int(fields[11]) + int(fields[12])


def output_of(command):
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def of_clients(program, url, clients):
    result = output_of([program, 'bench', 'serve', '--url', url, '--clients', clients, '--in', str(IN), '--out',
                        str(OUT), '--temperature', str(TEMPERATURE), '--json'])
    return {row['clients']: (row['tokens_per_second'], row['first_token_ms_p50']) for row in result['rows']}


def of_engine(program, clients):
    result = output_of([program, 'bench', 'batch', '--sequences', clients, '--in', str(IN), '--out', str(OUT),
                        '--temperature', str(TEMPERATURE), '--arrivals', '1000000', '--runs', '1', '--json'])
    rows = {}
    for row in result['runs']:  # with speculation where it is configured: that row comes last
        rows[row['sequences']] = (row['tokens_per_second'], row['first_token_p50_ms'])
    return rows


def prompt_of(number):
    text = f'# module {number}\n'
    for line in range(7):
        name = (number * 7919 + line * 104729) % 9973
        text += f'def function_{name}(value, other={name % 97}):\n    return value * {name % 31} + other\n\n'
    return text


def of_request(server, number):
    connection = http.client.HTTPConnection('127.0.0.1', server.port)
    start = time.perf_counter()
    connection.request('POST', '/v1/completions', json.dumps(
        {'prompt': prompt_of(number), 'max_tokens': OUT, 'temperature': TEMPERATURE, 'seed': number,
         'ignore_eos': True, 'stream': True}))
    connection.getresponse().read()
    return OUT / (time.perf_counter() - start)


def of_complete(program, number):
    timings = output_of([program, 'complete', '-p', prompt_of(number), '-n', str(OUT), '--temperature',
                         str(TEMPERATURE), '--seed', str(number), '--ignore-eos', '--json'])['timings']
    return 1000 * OUT / (timings['ttft_ms'] + timings['decode_ms'])


def metric(server, name):
    connection = http.client.HTTPConnection('127.0.0.1', server.port)
    connection.request('GET', '/metrics?aliases=no')
    text = connection.getresponse().read().decode()
    return int(re.search(rf'^foresay_{name}\{{[^}}]*\}} (\d+)$', text, re.M)[1])


def idle_ticks(program, streams):
    """Ticks in 8 s of 64 connections that ask nothing, or of as many streams that no client reads."""
    with tempfile.TemporaryDirectory() as folder:
        # What a socket of the file system holds is bounded, so that a text waits for its reader soon.
        path = f'{folder}/socket'
        server = Server([program, 'serve', '--listen', '127.0.0.1:0', '--listen', f'unix:{path}', '--parallel', '64'])
        held = [socket.socket(socket.AF_UNIX) for _ in range(64)]
        body = json.dumps({'prompt': 'x = ', 'n_predict': 900, 'ignore_eos': True, 'stream': True, 'n_probs': 100})
        for connection in held:
            connection.connect(path)
            if streams:
                connection.sendall(f'POST /completion HTTP/1.1\r\ncontent-length: {len(body)}\r\n\r\n{body}'
                                   .encode())
        made, same = 0, 0
        while streams and same < 4:  # until none makes a token any more
            time.sleep(1)
            now = metric(server, 'inter_token_seconds_count')
            same = same + 1 if now == made > 0 else 0
            made = now
        running = metric(server, 'requests_running')
        if streams and running != 64:
            raise SystemExit(f'{running} of 64 streams are open')
        time.sleep(1)
        before = server.ticks()
        time.sleep(8)
        spent = server.ticks() - before
        for connection in held:
            connection.close()
        server.end()
        return spent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('program')
    parser.add_argument('--llama', help='llama-server')
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--clients', default='1,4,8,16')
    options = parser.parse_args()
    threads = str(len(os.sched_getaffinity(0)))
    clients = [int(count) for count in options.clients.split(',')]
    most = str(max(clients))
    runs = []
    singles = []
    for turn in range(options.rounds):
        run = {}
        server = Server([options.program, 'serve', '--listen', '127.0.0.1:0'])
        run['serve'] = of_clients(options.program, server.url(), options.clients)
        for each in range(SINGLE):
            number = 100_000 + turn * SINGLE + each
            singles.append((of_request(server, number), of_complete(options.program, number)))
        server.end()
        run['engine'] = of_engine(options.program, options.clients)
        if options.llama:
            server = Server([options.llama, '-m', str(MODEL), '--host', '127.0.0.1', '--port', '18089', '-np', most,
                             '-c', str(int(most) * 512), '-t', threads, '-tb', threads], 18089)
            run['llama'] = of_clients(options.program, server.url(), options.clients)
            server.end()
        runs.append(run)
        print(json.dumps(run), flush=True)

    median = statistics.median
    print(f'{IN} tokens in, {OUT} out, medians of {options.rounds} rounds: tokens per second, first token')
    for count in clients:
        line = f'{count:3} clients'
        for name in runs[0]:
            rate = median(run[name][count][0] for run in runs)
            first = median(run[name][count][1] for run in runs)
            # All requests of the engine come at once, so theirs is a time in the queue.
            line += f'   {name} {rate:.0f} tok/s' + ('' if name == 'engine' else f' {first:.0f} ms')
        for name in list(runs[0])[1:]:
            ratio = median(run['serve'][count][0] / run[name][count][0] for run in runs)
            line += f'   {ratio:.2f} of {name}'
        print(line)
    print(f'one request: serve {median(a for a, _ in singles):.0f} tok/s, complete {median(b for _, b in singles):.0f}, '
          f'{median(a / b for a, b in singles):.2f} of it')
    print(f'64 connections that ask nothing, 8 s: {idle_ticks(options.program, False)} ticks, 64 streams that no client '
          f'reads: {idle_ticks(options.program, True)} ({os.sysconf("SC_CLK_TCK")} make a second)')


main()
