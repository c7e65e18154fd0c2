package thumbnail

import (
	"image/color"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var (
	none  = color.NRGBA{}
	blue  = color.NRGBA{0, 0, 255, 255}
	black = color.NRGBA{0, 0, 0, 255}
)

// Each drawing measures 96 by 96 unless it says otherwise, and has these colours at these
// places.
func TestSVG(t *testing.T) {
	t.Parallel()
	type spot struct {
		x, y int
		want color.NRGBA
	}
	for name, tt := range map[string]struct {
		svg   string
		spots []spot
	}{
		"rect":              {`<rect x="10" y="10" width="50" height="50" fill="blue"/>`, []spot{{30, 30, blue}, {70, 70, none}, {5, 5, none}}},
		"black by default":  {`<circle cx="48" cy="48" r="20"/>`, []spot{{48, 48, black}, {80, 48, none}}},
		"round corners":     {`<rect width="96" height="96" rx="40" fill="blue"/>`, []spot{{48, 48, blue}, {3, 3, none}, {48, 1, blue}}},
		"path":              {`<path d="M10 10h60v60H10z" fill="#00f"/>`, []spot{{40, 40, blue}, {80, 80, none}}},
		"path without gaps": {`<path d="M10-.5l60 0 .0.5L70 70-0 70Z" fill="blue"/>`, []spot{{40, 40, blue}}},
		"curves":            {`<path d="M8 48C8 8 88 8 88 48S8 88 8 48" fill="blue"/>`, []spot{{48, 30, blue}, {2, 2, none}}},
		"quadratic":         {`<path d="M0 96Q48-96 96 96T96 96" fill="blue"/>`, []spot{{48, 60, blue}, {5, 20, none}}},
		"arc":               {`<path d="M8 48a40 40 0 1180 0 40 40 0 01-80 0z" fill="blue"/>`, []spot{{48, 48, blue}, {48, 10, blue}, {10, 10, none}}},
		"ellipse":           {`<ellipse cx="48" cy="48" rx="40" ry="10" fill="blue"/>`, []spot{{15, 48, blue}, {48, 20, none}}},
		"polygon":           {`<polygon points="0,0 96,0 0,96" fill="blue"/>`, []spot{{10, 10, blue}, {90, 90, none}}},
		"stroke":            {`<path d="M10 48h76" stroke="blue" stroke-width="20"/>`, []spot{{48, 40, blue}, {48, 56, blue}, {48, 70, none}, {5, 48, none}}},
		"round stroke":      {`<g fill="none" stroke="#0000ff" stroke-width="20" stroke-linecap="round"><polyline points="20 20 76 20 76 76"/></g>`, []spot{{48, 20, blue}, {76, 48, blue}, {82, 14, blue}, {30, 60, none}}},
		"a ring":            {`<circle cx="48" cy="48" r="30" fill="none" stroke="blue" stroke-width="10"/>`, []spot{{48, 48, none}, {78, 48, blue}, {48, 18, blue}}},
		"a hole":            {`<path fill="blue" d="M0 0h96v96H0zM30 30v36h36V30z"/>`, []spot{{10, 10, blue}, {48, 48, none}}},
		"an even-odd hole":  {`<path fill="blue" fill-rule="evenodd" d="M0 0h96v96H0zM30 30h36v36H30zM40 40h16v16H40z"/>`, []spot{{10, 10, blue}, {34, 34, none}, {48, 48, blue}}},
		"transforms":        {`<g transform="translate(48,48) rotate(45)"><rect x="-10" y="-40" width="20" height="80" fill="blue" transform="scale(1, .5)"/></g>`, []spot{{48, 48, blue}, {58, 38, blue}, {48, 15, none}, {75, 21, none}}},
		"a gradient":        {`<rect width="96" height="96" fill="url(#g)"/><defs><linearGradient id="g"><stop stop-color="#0000ff"/><stop offset="1" style="stop-color:#0000ff"/></linearGradient></defs>`, []spot{{48, 48, blue}}},
		"a gradient of one": {`<linearGradient id="a"><stop stop-color="blue"/></linearGradient><radialGradient id="b" xlink:href="#a"/><rect width="96" height="96" fill="url('#b')"/>`, []spot{{48, 48, blue}}},
		"classes":           {`<style>/* x */.a{fill:red;} .b, #c { fill : blue } @media (prefers-color-scheme: dark) { .b { fill: red } }</style><rect class="x b" width="40" height="96"/><rect id="c" x="50" width="46" height="96"/>`, []spot{{20, 48, blue}, {70, 48, blue}, {45, 48, none}}},
		"a style":           {`<rect width="96" height="96" fill="red" style="fill: #00F !important"/>`, []spot{{48, 48, blue}}},
		"half":              {`<g opacity=".5"><rect width="96" height="96" fill="blue"/></g>`, []spot{{48, 48, color.NRGBA{0, 0, 255, 128}}}},
		"currentColor":      {`<g color="blue"><rect width="96" height="96" fill="currentColor"/></g>`, []spot{{48, 48, blue}}},
		"not shown":         {`<rect width="40" height="96" fill="blue"/><defs><rect width="96" height="96" fill="red"/></defs><g display="none"><rect width="96" height="96" fill="red"/></g>`, []spot{{20, 20, blue}, {80, 20, none}}},
		"up to a mistake":   {`<path fill="blue" d="M0 0H96V96H0Z M x"/>`, []spot{{48, 48, blue}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			img := decodeSVG([]byte(`<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 96 96">` + tt.svg + `</svg>`))
			if img == nil {
				t.Fatal("nothing is drawn")
			}
			for _, s := range tt.spots {
				if got := color.NRGBAModel.Convert(img.At(s.x, s.y)).(color.NRGBA); got.A == 0 && s.want.A != 0 || s.want.A == 0 && got.A != 0 || s.want.A != 0 && !near(got, s.want) {
					t.Errorf("at %d,%d: %v, want %v", s.x, s.y, got, s.want)
				}
			}
		})
	}
	small := decodeSVG([]byte(`<svg width="24" height="12"><rect width="24" height="12" fill="blue"/></svg>`))
	if small == nil || !near(color.NRGBAModel.Convert(small.At(48, 48)).(color.NRGBA), blue) || color.NRGBAModel.Convert(small.At(48, 10)).(color.NRGBA).A != 0 {
		t.Error("a drawing without a viewBox is not fitted in")
	}
}

// What would take long, take much, or is nothing to see is no icon.
func TestSVGRefused(t *testing.T) {
	t.Parallel()
	head := `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 96 96">`
	for name, svg := range map[string]string{
		"nothing": "", "text": head + `<text y="80">🦊</text></svg>`, "empty": head + `</svg>`, "not closed": head + `<rect width="9" height="9"`, "a page": "<!doctype html><p>hello",
		"deep":     head + strings.Repeat("<g>", 1000) + `<rect width="96" height="96"/>`,
		"too long": head + strings.Repeat(`<rect width="96" height="96"/>`, 6000) + `</svg>`,
		"itself":   head + `<defs><g id="a"><use href="#a"/></g></defs><use href="#a"/></svg>`,
		"laughs":   `<!DOCTYPE svg [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>` + head + `<path d="&b;"/></svg>`,
		"a script": head + `<script>alert(1)</script><foreignObject><rect width="96" height="96"/></foreignObject></svg>`,
		"pictures": head + `<image href="file:///etc/passwd" width="96" height="96"/></svg>`,
	} {
		if img := decodeSVG([]byte(svg)); img != nil {
			t.Errorf("%s became an icon", name)
		}
	}
	for name, svg := range map[string]string{
		"many points": head + `<path stroke="red" stroke-width="50" d="M0 0` + strings.Repeat("L96 96L0 0", 12_000) + `"/></svg>`,
		"far away":    head + `<g transform="scale(1e6) scale(1e6) scale(1e6)"><path stroke="red" stroke-width="1e6" d="M-1e6-1e6L1e6 1e6A1e6 1e-6 45 1 1 0 0"/></g><rect width="9" height="9"/></svg>`,
		"many rules":  head + `<style>` + strings.Repeat("rect{fill:blue;stroke:red}", 2000) + `</style>` + strings.Repeat(`<rect width="9" height="9"/>`, 1500) + `</svg>`,
	} {
		if img := decodeSVG([]byte(svg)); img == nil {
			t.Errorf("%s: not drawn", name)
		}
	}
}

// Whatever the bytes are, drawing them ends, and what comes out is an icon or nothing.
func FuzzSVG(f *testing.F) {
	f.Add([]byte(`<svg viewBox="0 0 9 9"><style>.a{fill:red}</style><path class="a" transform="rotate(3 1 2) skewX(4)" d="M1 1a2 2 0 013-3q1 2 3 4t1 1s1 2 3 4zm1 1z"/></svg>`))
	f.Add([]byte(`<svg width="4"><g stroke="url(#a)" stroke-width="2"><polyline points="1 2 3 4"/></g><linearGradient id="a"><stop stop-color="#123"/></linearGradient></svg>`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if img := decodeSVG(b); img != nil {
			look(t, encodeIcon(img))
		}
	})
}

// Icons of well-known shape, for people to look at where SLIPWAY_SHOTS names a folder.
func TestSVGLook(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("SLIPWAY_SHOTS")
	for name, svg := range map[string]string{
		"home": `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" stroke-linejoin="round"><path d="m3 9 9-7 9 7v11a2 2 0 0 1-2 2H5a2 2 0 0 1-2-2z"/><polyline points="9 22 9 12 15 12 15 22"/></svg>`,
		"ship": `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="8" fill="#2456d6"/><path d="M6 17.5h20l-3.2 5.2a2.4 2.4 0 0 1-2 1.1h-9.6a2.4 2.4 0 0 1-2-1.1z" fill="#fff"/><path d="M15 6.5 8.6 15H15zM17 8.6V15h5.2z" fill="#b9cdff"/></svg>`,
	} {
		img := decodeSVG([]byte(svg))
		if img == nil {
			t.Errorf("%s is not drawn", name)
			continue
		}
		if dir != "" {
			if err := os.WriteFile(filepath.Join(dir, "icon-"+name+".png"), encodeIcon(img), 0o644); err != nil {
				t.Error(err)
			}
		}
	}
}
