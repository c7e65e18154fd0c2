package sites

import (
	"strings"
	"testing"

	"slipway/internal/deploy/deployment"
)

// Every deployment trigger has a description.
func TestTriggersHaveWords(t *testing.T) {
	t.Parallel()
	for _, c := range deployment.Causes {
		if by := (DeploymentRow{Deployment: deployment.Deployment{Cause: c}}).By(); by == string(c) || !strings.Contains(by, " ") {
			t.Errorf("%s is shown as %q", c, by)
		}
	}
}
