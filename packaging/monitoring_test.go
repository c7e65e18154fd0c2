package packaging

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each figure of Slipway's that the alerts and the Grafana dashboard ask for is one that the program
// tells, and each that it tells is asked for somewhere.
func TestMonitoring(t *testing.T) {
	t.Parallel()
	told := map[string]bool{}
	declared := regexp.MustCompile(`"(slipway_[a-z_]+)"`)
	err := filepath.WalkDir("../internal", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), `"github.com/prometheus/client_golang/prometheus"`) {
			return err
		}
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			told[m[1]] = false
		}
		return nil
	})
	if err != nil || len(told) < 15 {
		t.Fatalf("%d figures found in the program: %v", len(told), err)
	}
	for _, name := range []string{"monitoring/slipway.rules.yml", "monitoring/grafana.json"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, used := range regexp.MustCompile(`\bslipway_[a-z_]+`).FindAllString(string(text), -1) {
			used = strings.TrimSuffix(used, "_bucket")
			if _, ok := told[used]; !ok {
				t.Errorf("%s asks for %s, which the program does not tell", name, used)
			}
			told[used] = true
		}
	}
	rare := map[string]bool{ // for those who look closer
		"slipway_certificate_lookups_total": true, "slipway_edge_certificates_minted_total": true, "slipway_webhook_in_flight": true,
	}
	for name, used := range told {
		if !used && !rare[name] {
			t.Errorf("neither an alert nor the dashboard uses %s", name)
		}
	}
}
