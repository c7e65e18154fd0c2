#!/bin/sh
# Deploys a folder from a workflow of GitHub Actions. It needs curl, jq and tar, which GitHub's runners have.
# Secrets are passed to curl on standard input: arguments can be seen by every process.
# What a server says is data: GitHub reads lines with :: as commands, outputs are lines of a file, and curl's settings are lines, too.
set -eu
LC_ALL=C
export LC_ALL

# fail ends with an error, however many lines it has one command to GitHub.
fail() {
  printf '%s' "$1" | head -c 4000 | tr -d '\000-\010\013-\037\177' | sed 's/%/%25/g' |
    awk 'BEGIN { printf "::error::" } NR > 1 { printf "%%0A" } { printf "%s", $0 } END { print "" }' >&2
  exit 1
}

# only WHAT CHARACTERS VALUE: fails unless the value has these characters alone, and at least one.
only() {
  case $3 in
  '' | *[!$2]*) fail "$1 is not what it should be" ;;
  esac
}

server=${SLIPWAY_SERVER%/}
: "${SLIPWAY_SITE:?site is missing}" "${DIRECTORY:=.}" "${KIND:=source}" "${TARGET:=preview}"
case $server in
https://* | http://127.0.0.1:* | http://localhost:*) ;;
*) fail "server must be an https address" ;;
esac
case $SLIPWAY_SITE in
site_*) only "The site's id" A-Za-z0-9_ "$SLIPWAY_SITE" ;;
*) fail "site must be the id of a site, which begins with site_" ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# request SECRET ARGUMENTS…: prints the answer, or fails with what the server says. Without a secret it is empty.
request() {
  secret=$1
  shift
  [ -z "$secret" ] || only "The token" 'A-Za-z0-9._~+/=-' "$secret"
  status=$(printf '%s\n' "${secret:+header = \"Authorization: Bearer $secret\"}" |
    curl --silent --show-error --globoff --max-filesize 16777216 --retry 3 --config - --output "$work/answer" --write-out '%{http_code}' "$@") ||
    fail "The server can't be reached"
  case $status in
  2??) cat "$work/answer" ;;
  *) fail "$(jq -r '[.error_description // .error, .details // empty] | join(": ")' "$work/answer" 2>/dev/null || echo "The server answered $status")" ;;
  esac
}

if [ -z "${SLIPWAY_TOKEN:-}" ]; then
  [ -n "${ACTIONS_ID_TOKEN_REQUEST_URL:-}" ] || fail "The workflow has no identity. Add to its job: permissions: {id-token: write, contents: read}. Pull requests from forks never have one"
  audience=$(jq -rn --arg v "$server" '$v | @uri')
  request "$ACTIONS_ID_TOKEN_REQUEST_TOKEN" "$ACTIONS_ID_TOKEN_REQUEST_URL&audience=$audience" >"$work/identity"
  jq -j .value "$work/identity" >"$work/id_token"
  request '' --data-urlencode "subject_token@$work/id_token" \
    --data-urlencode 'grant_type=urn:ietf:params:oauth:grant-type:token-exchange' \
    --data-urlencode 'subject_token_type=urn:ietf:params:oauth:token-type:id_token' \
    --data-urlencode "audience=$SLIPWAY_SITE" "$server/oauth/token" >"$work/key"
  SLIPWAY_TOKEN=$(jq -r '.access_token // empty' "$work/key")
fi
only "The token" 'A-Za-z0-9._~+/=-' "$SLIPWAY_TOKEN"
printf '::add-mask::%s\n' "$SLIPWAY_TOKEN"

[ -d "$DIRECTORY" ] || fail "There is no folder $DIRECTORY"
tar -C "$DIRECTORY" --exclude=./.git --exclude=./node_modules --exclude='.env' --exclude='.env.*' -czf "$work/site.tar.gz" .
query=$(jq -rn --arg kind "$KIND" --arg target "$TARGET" --arg branch "${BRANCH:-${GITHUB_HEAD_REF:-${GITHUB_REF_NAME:-}}}" \
  --arg title "${GITHUB_WORKFLOW:-GitHub Actions} ${GITHUB_SHA:-}" \
  '{kind: $kind, target: $target, title: $title} + if $target == "preview" then {branch: $branch} else {} end
   | to_entries | map("\(.key)=\(.value | @uri)") | join("&")')
request "$SLIPWAY_TOKEN" --header 'Content-Type: application/gzip' \
  --header "Idempotency-Key: ${GITHUB_RUN_ID:-local}-${GITHUB_RUN_ATTEMPT:-$$}-${GITHUB_ACTION:-deploy}-$TARGET" \
  --data-binary "@$work/site.tar.gz" "$server/api/v1/sites/$SLIPWAY_SITE/deploy/archive?$query" >"$work/started"
id=$(jq -r '.deploymentId // empty' "$work/started")
only "The deployment's id" A-Za-z0-9_ "$id"
printf 'deployment-id=%s\n' "$id" >>"${GITHUB_OUTPUT:-/dev/null}"
printf 'Deployment %s\n' "$id"

while :; do
  request "$SLIPWAY_TOKEN" "$server/api/v1/deployments/$id" >"$work/deployment"
  case $(jq -r .status "$work/deployment") in
  success) break ;;
  failed | canceled) fail "Deployment $(jq -r '.status + ": " + (.error // "see its log")' "$work/deployment")" ;;
  '' | null) fail "The server's answer names no status" ;;
  esac
  sleep 2
done
url=$(jq -r '.previewUrl // .url // empty' "$work/deployment")
case $url in
https://* | http://*) only "The deployment's address" "A-Za-z0-9._~:/?#@!\$&'()*+,;=%-" "$url" ;;
*) fail "The deployment's address is not what it should be" ;;
esac
printf 'url=%s\n' "$url" >>"${GITHUB_OUTPUT:-/dev/null}"
printf '%s\n' "$url"
