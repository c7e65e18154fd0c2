package upgrade

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"slipway/internal/operator/installation"
	"slipway/internal/platform/disk"
)

// What LastAuto says where all went well.
const (
	NothingNewer = "no newer patch release"
	UpgradedTo   = "upgraded to "
)

// Auto upgrades to the newest release of the installed minor version, if there is a newer one, for timers that run it at night.
// at is a folder, or an https:// address: the file versions there, which is signed, has a version a line, and a release lies in
// the folder that is named for its version. One that did not work, or that somebody went back from, is not tried again by itself.
func (c Config) Auto(ctx context.Context, at string, trust Source) error {
	at = strings.TrimSuffix(at, "/") + "/"
	trust.Keys = trimmed(trust.Keys)
	to, err := c.newest(ctx, at, trust)
	if err == nil && to != "" {
		trust.Version = to
		trust.Archive = fmt.Sprintf("%s%s/slipway_%s_linux_%s.tar.gz", at, to, to, runtime.GOARCH)
		err = c.Run(ctx, trust)
	}
	note := NothingNewer
	switch {
	case err != nil:
		note = err.Error()
	case to != "":
		note = UpgradedTo + to
	}
	return errors.Join(err, disk.Write(autoFile(c.Store), []byte(note+"\n"), 0o600))
}

// newest returns the version that Auto goes to, or an empty one.
func (c Config) newest(ctx context.Context, at string, trust Source) (newest string, err error) {
	if err := os.MkdirAll(folder(c.Store), 0o700); err != nil {
		return "", err
	}
	if err := c.mayReplace(ctx); err != nil {
		return "", err
	}
	installed, err := ask(ctx, c.Program)
	if err != nil {
		return "", err
	}
	if !semver.IsValid("v" + installed.Version) {
		return "", fmt.Errorf("%s is not a release: upgrade it by hand first", installed.Version)
	}
	if len(trust.Keys) == 0 {
		return "", errors.New("no key says whose releases to trust: give --release-key")
	}
	list, err := trust.signed(ctx, at, "versions")
	if err != nil {
		return "", err
	}
	skip := ""
	switch last, err := Last(c.Store); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return "", err
	case last.Outcome == Upgraded && last.undoes():
		skip = last.From.Version
	case last.Outcome == Returned || last.Outcome == Stuck:
		skip = last.To.Version
	}
	newest = installed.Version
	lines := bufio.NewScanner(bytes.NewReader(list))
	for lines.Scan() {
		v := strings.TrimSpace(lines.Text())
		if !semver.IsValid("v"+v) || semver.Prerelease("v"+v) != "" || semver.MajorMinor("v"+v) != semver.MajorMinor("v"+installed.Version) {
			continue
		}
		if older(newest, v) && v != skip {
			newest = v
		}
	}
	if newest == installed.Version {
		c.say("%s is the newest release of its minor version.", installed.Version)
		return "", lines.Err()
	}
	return newest, lines.Err()
}

func autoFile(s installation.Store) string { return filepath.Join(folder(s), "auto") }

// LastAuto says how automatic upgrading went last and when, or returns fs.ErrNotExist.
func LastAuto(s installation.Store) (text string, at time.Time, err error) {
	info, err := os.Stat(autoFile(s))
	if err != nil {
		return "", at, err
	}
	b, err := os.ReadFile(autoFile(s))
	return strings.TrimSpace(string(b)), info.ModTime(), err
}
