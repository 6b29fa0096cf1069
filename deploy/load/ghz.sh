# Sourced by scripts that send requests with ghz: installs a fixed version once in $target, and sets `ghz`. Needs Go.
ghz_version=v0.121.0
ghz=$target/load/bin/ghz
command -v go >/dev/null || { echo 'Go is missing, which installs ghz: install Go 1.21 or later' >&2; exit 1; }
if ! go version -m "$ghz" 2>/dev/null | grep -q "bojand/ghz[[:space:]]$ghz_version"; then
  GOBIN=$target/load/bin go install "github.com/bojand/ghz/cmd/ghz@$ghz_version"
fi
