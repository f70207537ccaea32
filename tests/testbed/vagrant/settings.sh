# Sets what testbed.env says; a variable of the environment stands above it. The scripts source this.
# shellcheck shell=bash
while IFS='=' read -r name value; do
    [[ -v $name ]] || declare -x "$name=$value"
done < <(grep -E '^[A-Z0-9_]+=' "$(dirname "${BASH_SOURCE[0]}")/testbed.env")
