package thumbnail

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"
)

// What icons are made of is handed on as it is; what runs, loads, moves or multiplies is
// no icon.
func TestSVG(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		svg string
		ok  bool
	}{
		"plain": {
			`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8"><rect width="8" height="8" fill="#1e3cdc"/></svg>`,
			true,
		},
		"a prolog": {
			`<?xml version="1.0" encoding="UTF-8"?><!-- made by hand --><svg xmlns="http://www.w3.org/2000/svg"><path d="M0 0"/></svg>`,
			true,
		},
		"gradients": {
			`<svg><defs><linearGradient id="a"><stop offset="0"/></linearGradient></defs><path fill="url(#a)" d="M0 0"/></svg>`,
			true,
		},
		"a mask": {`<svg><mask id="m"><path d="M0 0"/></mask><g mask="url('#m')"><path d="M0 0"/></g></svg>`, true},
		"dark mode": {
			`<svg><style>path { fill: #000 } @media (prefers-color-scheme: dark) { path { fill: #fff } }</style><path d="M0 0"/></svg>`,
			true,
		},
		"inherited gradient": {`<svg><radialGradient id="b" href="#a"/><path d="M0 0"/></svg>`, true},

		"nothing to see":        {`<svg></svg>`, false},
		"cut off":               {`<svg><path d="M0 0"/>`, false},
		"HTML":                  {`<html><svg><path d="M0 0"/></svg></html>`, false},
		"too large":             {`<svg><path d="` + strings.Repeat("M0 0", maxSVG/4) + `"/></svg>`, false},
		"too deep":              {`<svg>` + strings.Repeat(`<g>`, 40) + `<path d="M0 0"/>` + strings.Repeat(`</g>`, 40) + `</svg>`, false},
		"a script":              {`<svg><script>alert(1)</script><path d="M0 0"/></svg>`, false},
		"a handler":             {`<svg onload="alert(1)"><path d="M0 0"/></svg>`, false},
		"a link":                {`<svg><a href="https://example.com"><path d="M0 0"/></a></svg>`, false},
		"foreign content":       {`<svg><foreignObject><body/></foreignObject><path d="M0 0"/></svg>`, false},
		"an entity":             {`<!DOCTYPE svg [<!ENTITY a "aaaa">]><svg><path d="M0 0"/></svg>`, false},
		"a style sheet's file":  {`<?xml-stylesheet href="https://example.com/a.css"?><svg><path d="M0 0"/></svg>`, false},
		"another encoding":      {`<?xml version="1.0" encoding="UTF-7"?><svg><path d="M0 0"/></svg>`, false},
		"use":                   {`<svg><g id="a"><path d="M0 0"/></g><use href="#a"/></svg>`, false},
		"a pattern":             {`<svg><pattern id="a"><path d="M0 0"/></pattern><path fill="url(#a)" d="M0 0"/></svg>`, false},
		"a mask in a mask":      {`<svg><mask id="a"><path mask="url(#b)" d="M0 0"/></mask><path d="M0 0"/></svg>`, false},
		"another mask in style": {`<svg><mask id="a"><path style="MASK: URL(#b)" d="M0 0"/></mask><path d="M0 0"/></svg>`, false},
		"a mask by rule": {
			`<svg><style>path { mask: url(#a) }</style><mask id="a"><path d="M0 0"/></mask><path d="M0 0"/></svg>`,
			false,
		},
		"a picture":       {`<svg><image href="https://example.com/a.png"/><path d="M0 0"/></svg>`, false},
		"another address": {`<svg><path fill="url(https://example.com/a.svg#a)" d="M0 0"/></svg>`, false},
		"an import":       {`<svg><style>@import "https://example.com/a.css";</style><path d="M0 0"/></svg>`, false},
		"a split import": {
			`<svg><style>@media x{} @im<!-- -->port "https://example.com/a.css";</style><path d="M0 0"/></svg>`,
			false,
		},
		"an escaped address": {`<svg><style>path{fill:u\72l(https://example.com)}</style><path d="M0 0"/></svg>`, false},
		"an animation":       {`<svg><path d="M0 0"><animate attributeName="d"/></path></svg>`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := harmlessSVG([]byte(tt.svg)); got != tt.ok {
				t.Errorf("harmless: %v", got)
			}
			for at, page := range map[string]string{
				"file": `<link rel=icon href=/i.svg>`,
				"data": `<link rel=icon href="data:image/svg+xml;base64,` + base64.StdEncoding.EncodeToString([]byte(tt.svg)) + `">`,
			} {
				p := Of(context.Background(), filesOf(page, map[string][]byte{"i.svg": []byte(tt.svg)}))
				if tt.ok && (string(p.Icon) != tt.svg || IconType(p.Icon) != "image/svg+xml") || !tt.ok && p.Icon != nil {
					t.Errorf("%s: the icon is %q", at, p.Icon)
				}
			}
		})
	}
}
