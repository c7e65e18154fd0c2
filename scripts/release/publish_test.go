package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"aead.dev/minisign"
)

// A published release must be complete in its folder and must be in the signed list, which names every existing
// release. It must never change afterwards. What is not a release, or is not signed, must not be published.
func TestPublish(t *testing.T) {
	public, private, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	releases := t.TempDir()
	made := func(version string) *release {
		t.Helper()
		r := &release{out: t.TempDir(), version: version, signer: &private, trusts: public.String()}
		for name, text := range map[string]string{"slipway_" + version + "_linux_amd64.tar.gz": "archive", "SHA256SUMS": "sums", "SHA256SUMS.minisig": "signature"} {
			if err := os.WriteFile(filepath.Join(r.out, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return r
	}
	lists := func(want ...string) {
		t.Helper()
		list, err := os.ReadFile(filepath.Join(releases, "versions"))
		if err != nil {
			t.Fatal(err)
		}
		signature, err := os.ReadFile(filepath.Join(releases, "versions.minisig"))
		if err != nil || !minisign.Verify(public, list, signature) {
			t.Errorf("the list is not signed: %v", err)
		}
		if got := strings.Fields(string(list)); !slices.Equal(got, want) {
			t.Errorf("the list has %q, want %q", got, want)
		}
	}
	for _, version := range []string{"1.4.2", "1.4.10", "1.4.2", "1.3.9", "2.0.0-rc1"} {
		if err := made(version).publish(releases); err != nil {
			t.Errorf("publish %s: %v", version, err)
		}
		if err := sameFiles(made(version).out, filepath.Join(releases, version)); err != nil {
			t.Errorf("%s: %v", version, err)
		}
	}
	lists("1.3.9", "1.4.2", "1.4.10", "2.0.0-rc1")

	changed := made("1.4.2")
	if err := os.WriteFile(filepath.Join(changed.out, "SHA256SUMS"), []byte("other sums"), 0o644); err != nil {
		t.Fatal(err)
	}
	unsigned := made("1.4.11")
	unsigned.signer = nil
	for says, r := range map[string]*release{
		"SHA256SUMS differs": changed, "needs -sign": unsigned, "is not a release": made("1.4.11+20261127.gabc"), "1.4 is not a release": made("1.4"),
	} {
		if err := r.publish(releases); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	// A release without a signature, one that was cut off, and one that was removed must not be listed.
	for _, name := range []string{"1.4.12", ".publishing-1.4.13"} {
		if err := os.Mkdir(filepath.Join(releases, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(filepath.Join(releases, "1.4.10")); err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"1.4.13", "1.4.13"} {
		if err := made(version).publish(releases); err != nil {
			t.Error(err)
		}
	}
	lists("1.3.9", "1.4.2", "1.4.13", "2.0.0-rc1")
}
