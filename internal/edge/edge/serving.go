package edge

import (
	"encoding/json"

	"slipway/internal/edge/access"
)

// serving holds what a site's settings say beyond its release. It is immutable.
type serving struct {
	access.Settings
	ProxyHosts []string `json:"proxyHosts"`

	AccessLog     string `json:"accessLog"`     // truncated, no-addresses, off
	SinglePage    string `json:"singlePage"`    // auto, on, off
	TrailingSlash string `json:"trailingSlash"` // auto, always, never
}

// readServing reads a row's settings; what cannot be read protects everything.
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

// protected reports whether the target's visitors must give the site's password or sign in.
func (t *target) protected() bool {
	return t.serving != nil && t.serving.Protects(t.preview)
}

// accessLog is the site's setting for its access log.
func (t *target) accessLog() string {
	if t.serving == nil {
		return ""
	}
	return t.serving.AccessLog
}
