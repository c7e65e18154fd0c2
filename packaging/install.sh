#!/bin/sh
# Installs Slipway on this machine, or upgrades it, from the files of a release.
#
#   sh install.sh [--from FOLDER-OR-URL] [--dry-run] [--without-signature]
#
# With dpkg it installs the Debian package; elsewhere the archive, to /usr/local/bin, with units for
# systemd. Nothing is run before the checksum and the signature of what was fetched are right.
# All of it is one function that is called on the last line: a file that was cut off runs nothing.

slipway_install() {
	set -eu
	umask 022
	version='@VERSION@'
	keys='@KEYS@'
	from='' dry='' unsigned=''
	while [ $# -gt 0 ]; do
		case $1 in
		--from) [ $# -gt 1 ] || fail 2 "--from needs a folder or an address"; from=${2%/}; shift ;;
		--dry-run) dry=1 ;;
		--without-signature) unsigned=1 ;;
		*) fail 2 "unknown: $1; usage: sh install.sh [--from FOLDER-OR-URL] [--dry-run] [--without-signature]" ;;
		esac
		shift
	done
	[ "$(uname -s)" = Linux ] || fail 1 "the server runs on Linux; for other systems there is the command line alone"
	case $(uname -m) in
	x86_64) arch=amd64 ;;
	aarch64) arch=arm64 ;;
	*) fail 1 "there is no release for $(uname -m)" ;;
	esac
	if [ -z "$from" ]; then
		from=$(dirname "$0")
		[ -f "$from/SHA256SUMS" ] || fail 2 "name the release with --from: a folder, or an https:// address"
	fi
	case $from in
	https://*) command -v curl >/dev/null || fail 1 "curl is not installed" ;;
	*://*) fail 2 "releases are fetched over https alone" ;;
	esac
	if [ -e /usr/local/bin/slipway ]; then
		how=upgrade file=slipway_${version}_linux_$arch.tar.gz
	elif command -v dpkg >/dev/null && command -v apt-get >/dev/null; then
		how=deb file=slipway_${version}_$arch.deb
	else
		how=archive file=slipway_${version}_linux_$arch.tar.gz
	fi
	case $how in
	deb) echo "Slipway $version: install the Debian package $file" ;;
	archive) echo "Slipway $version: install $file: /usr/local/bin/slipway, /etc/slipway/server.toml, units in /etc/systemd/system" ;;
	upgrade) echo "Slipway $version: upgrade /usr/local/bin/slipway; it goes back by itself if the new one does not work" ;;
	esac
	[ -z "$dry" ] || exit 0
	[ "$(id -u)" = 0 ] || fail 1 "run it as root"

	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	for name in SHA256SUMS "$file"; do get "$name"; done
	verify
	(cd "$work" && grep -F "  $file" SHA256SUMS | grep -E "^[0-9a-f]{64}  " >wanted && sha256sum --check --strict --quiet wanted) ||
		fail 1 "$file is not what SHA256SUMS says: it was changed or cut off. Nothing was installed."

	case $how in
	deb)
		chmod 755 "$work" # apt reads it as another user
		apt-get install --yes "$work/$file"
		;;
	upgrade)
		sum=$(cut -d ' ' -f 1 "$work/wanted")
		/usr/local/bin/slipway upgrade --config /etc/slipway/server.toml --sha256 "$sum" "$work/$file"
		unpack
		units missing # those of a later version than the one that was installed; yours stay as they are
		;;
	archive)
		unpack
		install -D -m 755 "$work/slipway" /usr/local/bin/slipway
		install -D -m 644 "$work/slipway.1" /usr/local/share/man/man1/slipway.1
		install -D -m 644 "$work/completions/slipway.bash" /usr/local/share/bash-completion/completions/slipway
		mkdir -p /etc/slipway
		[ -e /etc/slipway/server.toml ] || install -m 640 "$work/server.toml" /etc/slipway/server.toml
		units all
		[ ! -d /run/systemd/system ] || systemctl enable slipway-upgrade.service
		echo "Slipway is installed, but not started. Next:"
		echo "  1. install bubblewrap and git, for builds"
		echo "  2. slipway setup      (asks five questions and writes /etc/slipway/server.toml)"
		echo "  3. systemctl enable --now slipway.socket slipway.service"
		;;
	esac
}

unpack() { tar -xzf "$work/$file" -C "$work" --strip-components=1 --no-same-owner; }

# units installs the release's units for systemd: all of them, or those that are missing.
units() {
	mkdir -p /etc/systemd/system
	for unit in slipway.service slipway.socket slipway-upgrade.service slipway-auto-upgrade.service slipway-auto-upgrade.timer; do
		[ "$1" = all ] || [ ! -e "/etc/systemd/system/$unit" ] || continue
		sed 's|/usr/bin/slipway|/usr/local/bin/slipway|g' "$work/$unit" >"/etc/systemd/system/$unit"
	done
	[ ! -d /run/systemd/system ] || systemctl daemon-reload
}

# get puts a file of the release into the work folder.
get() {
	case $from in
	https://*) curl --proto '=https' --fail --silent --show-error --location --max-filesize 600000000 --output "$work/$1" "$from/$1" ;;
	*) cp "$from/$1" "$work/$1" ;;
	esac || fail 1 "$1 can't be had from $from"
}

# verify ends unless SHA256SUMS is signed by a key of this release's.
verify() {
	if [ -n "$unsigned" ]; then
		echo "The signature is not checked, as --without-signature asks."
		return
	fi
	[ -n "$keys" ] || fail 1 "this release is not signed; --without-signature installs it all the same"
	command -v minisign >/dev/null || fail 1 "install minisign, which checks the signature, or give --without-signature"
	get SHA256SUMS.minisig
	for key in $keys; do
		if minisign -V -q -m "$work/SHA256SUMS" -x "$work/SHA256SUMS.minisig" -P "$key" >/dev/null 2>&1; then
			return
		fi
	done
	fail 1 "SHA256SUMS is not signed by the release's key. Nothing was installed."
}

fail() {
	status=$1
	shift
	echo "install.sh: $*" >&2
	exit "$status"
}

{ slipway_install "$@"; }
