package deployments

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"slipway/internal/deploy/deployment"
	"slipway/internal/web/api/contract"
)

// The API reference lists every deployment trigger.
func TestTriggersAreAllNamed(t *testing.T) {
	t.Parallel()
	f, _ := reflect.TypeFor[deploymentBody]().FieldByName("Trigger")
	named := strings.Split(f.Tag.Get("enum"), ",")
	for _, c := range deployment.Causes {
		if !slices.Contains(named, string(c)) {
			t.Errorf("the trigger %s is not in the enum %q", c, named)
		}
	}
}

func TestPlainText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`"a \u0026\u0026 b"`: `"a && b"`,
		`"\\u0026"`:          `"\\u0026"`,
		`"\\\u003c"`:         `"\\<"`,
		`"\u003e\u0041"`:     `">\u0041"`,
		`{}`:                 `{}`,
		``:                   ``,
	} {
		if got := string(contract.PlainText([]byte(in))); got != want {
			t.Errorf("%s becomes %s, want %s", in, got, want)
		}
	}
}
