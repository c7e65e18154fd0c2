package kube

import (
	"testing"

	"slipway/internal/program/runtime"
)

// A program gets the first image with its Node.js or PHP version, and an image with both if it needs both and one
// exists.
func TestChoose(t *testing.T) {
	t.Parallel()
	e := &Engine{c: Config{Images: []Image{
		{Name: "node24", Node: "24.1.0"},
		{Name: "node22", Node: "22.20.0"},
		{Name: "php8.4", PHP: []string{"8.4.11", "8.3.1"}},
		{Name: "php8.2", PHP: []string{"8.2.29"}},
		{Name: "both", Node: "22.20.0", PHP: []string{"8.2.29"}},
	}}}
	for _, tt := range []struct {
		node, php, image, version string
	}{
		{node: "", php: "-", image: "node24"},
		{node: "22", php: "-", image: "node22"},
		{node: "18", php: "-"},
		{php: "", image: "php8.4", version: "8.4.11"},
		{php: "~8.3.0", image: "php8.4", version: "8.3.1"},
		{php: "~8.2.0", image: "php8.2", version: "8.2.29"},
		{php: "^5.6"},
		{php: "~8.2.0", node: "22", image: "both", version: "8.2.29"},
		{php: "~8.4.0", node: "22", image: "php8.4", version: "8.4.11"},
	} {
		s := runtime.Spec{Node: tt.node}
		if tt.php != "-" {
			s.PHP = &runtime.PHP{Version: tt.php}
		}
		got, err := e.choose(s)
		if got.image != tt.image || got.php.Number != tt.version || (err == nil) != (tt.image != "") {
			t.Errorf("Node.js %q and PHP %q: %q with PHP %q, %v", tt.node, tt.php, got.image, got.php.Number, err)
		}
	}
}
