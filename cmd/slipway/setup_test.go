//go:build linux

package main

import (
	"strings"
	"testing"

	"slipway/packaging"
)

// What the service would refuse is refused before it is written, in the service's own words.
func TestCheckSettings(t *testing.T) {
	t.Parallel()
	s, err := checkSettings(packaging.Settings)
	if err != nil || s.DataDir != "/var/lib/slipway" || s.EdgeHTTPS != ":443" {
		t.Errorf("the settings of a new installation: %v, %+v", err, s.Store)
	}
	for text, want := range map[string]string{
		"base-url = \"https://app.example.com\"\nsite-domain = \"sites.example.com\"\n": "share a registrable domain",
		"base-ulr = \"https://app.example.com\"\n":                                      "unknown setting",
		"base-url = \n": "configuration file",
	} {
		if _, err := checkSettings(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
