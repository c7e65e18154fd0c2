package edge

import (
	"encoding/json"

	"slipway/internal/edge/access"
)

// serving holds a site's settings that apply beyond its release. It is immutable.
type serving struct {
	access.Settings
	ProxyHosts []string `json:"proxyHosts"`

	AccessLog     string `json:"accessLog"`     // truncated, no-addresses or off
	SinglePage    string `json:"singlePage"`    // auto, on or off
	TrailingSlash string `json:"trailingSlash"` // auto, always or never
}

// readServing parses a row's settings. Unreadable settings protect every address.
func readServing(text string) *serving {
	if text == "" {
		return nil
	}
	var s serving
	if json.Unmarshal([]byte(text), &s) != nil {
		return &serving{Settings: access.Settings{Password: "all"}}
	}
	return &s
}

func (t *target) protected() bool {
	return t.serving != nil && t.serving.Protects(t.preview)
}

func (t *target) accessLog() string {
	if t.serving == nil {
		return ""
	}
	return t.serving.AccessLog
}
