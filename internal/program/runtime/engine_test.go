package runtime_test

import (
	"testing"

	"slipway/internal/program/runtime"
	"slipway/internal/program/runtime/enginetest"
)

// Processes must keep all promises of an Engine.
func TestEngine(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, func(t *testing.T) enginetest.Setup {
		engine, store := runtime.NewForTest(t)
		return enginetest.Setup{Engine: engine, Bundle: store}
	})
}
