#!/bin/sh
# examples_test.sh FOLDER PROGRAM: the examples for several hosts in FOLDER are well-formed, have what their controllers
# need, and name only options that PROGRAM has. Exit status 77 means not run.
set -eu
for need in python3 bash; do
  command -v "$need" > /dev/null || { echo "not run: $need is not installed"; exit 77; }
done
python3 -c 'import yaml' 2> /dev/null || { echo "not run: python3-yaml is not installed"; exit 77; }
bash -n "$1/hosts.sbatch"
"$2" help serve > help.txt
python3 - "$1" help.txt << 'PYTHON'
import re, shlex, sys
import yaml

folder, help_file = sys.argv[1:]
options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", open(help_file).read()))


def check_command(words, where):
    assert words[0] == "serve", f"{where}: {words[0]}"
    given = [word.split("=")[0] for word in words if word.startswith("-")]
    assert given, f"{where} gives no option"
    for option in given:
        assert option in options, f"{where}: foresay serve has no {option}"


with open(f"{folder}/leader-worker-set.yml") as file:
    group, service = list(yaml.safe_load_all(file))
assert (group["apiVersion"], group["kind"]) == ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
template = group["spec"]["leaderWorkerTemplate"]
assert template["size"] >= 2 and template["restartPolicy"] == "RecreateGroupOnPodRestart"
leader, worker = template["leaderTemplate"], template["workerTemplate"]
assert leader["spec"] == worker["spec"], "the ranks run different commands"
(container,) = leader["spec"]["containers"]
assert container["command"] == ["/usr/bin/foresay"]
check_command(container["args"], "leader-worker-set.yml")
assert {volume["name"] for volume in leader["spec"]["volumes"]} == {m["name"] for m in container["volumeMounts"]}
environment = {variable["name"]: variable["value"] for variable in container["env"]}
assert all(isinstance(value, str) for value in environment.values())
ports = [port["containerPort"] for port in container["ports"]]
assert int(environment["MASTER_PORT"]) in ports
assert service["kind"] == "Service" and service["spec"]["ports"][0]["targetPort"] in ports
assert service["spec"]["selector"].items() <= leader["metadata"]["labels"].items(), "the service finds no leader"

script = open(f"{folder}/hosts.sbatch").read()
(line,) = [line for line in script.splitlines() if line.startswith("exec srun ")]
words = shlex.split(line)
check_command(words[words.index("foresay") + 1 :], "hosts.sbatch")
asked = dict(re.findall(r"^#SBATCH --([a-z-]+)=(.+)$", script, re.M))
assert int(asked["nodes"]) >= 2 and asked["ntasks-per-node"] == "1", "one process a host"
print(f"checked: {len(options)} options")
PYTHON
