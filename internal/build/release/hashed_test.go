package release

import (
	"strings"
	"testing"
)

// Hashed file names of bundlers are recognized, including images, and names that only look similar aren't.
func TestHashed(t *testing.T) {
	t.Parallel()
	vite := []HashedFolder{{"assets", Base64}}
	cra := []HashedFolder{{"static", Hex}}
	angular := []HashedFolder{{"", Base32}, {"media", Base32}, {"", Hex}}
	webpack := []HashedFolder{{"", Hex}}
	esbuild := []HashedFolder{{"", Base64}, {"", Base32}, {"", Hex}}
	for name, tt := range map[string]struct {
		folders []HashedFolder
		yes, no string
	}{
		"vite": {
			vite,
			"assets/index-BxYz12ab.js assets/index-D_8u-x1A.css assets/vendor-abcdefgh.js assets/react-CHdo91hT.svg assets/photo-a-b_c1-_.jpg assets/chunk.Dx2-_aZq.mjs assets/inter-latin-wght-normal-Dx4kXJAl.woff2 assets/index-BxYz12ab.js.map",
			"index.html assets/index.html vite.svg assets/logo.svg assets/index.js other/index-BxYz12ab.js assets/a-BxYz12.js assets/copied-BxYz12ab.js",
		},
		"create-react-app": {
			cra,
			"static/js/main.07cc1c01.js static/js/787.41d13ed2.chunk.js static/css/main.f855e6bc.css static/media/logo.6ce24c58023cc2f8fd88fe9d219db6c6.svg static/js/main.12345678.js",
			"favicon.ico static/plain.js logo192.png service-worker.js",
		},
		"angular": {
			angular,
			"main-ABCDEF23.js polyfills-FFHMD2TL.js styles-5INURTSO.css media/logo-QWERTZ22.svg main.0123456789abcdef.js chunk-ABCDEF23.js",
			"favicon.ico main.js assets/data.json main-abcdefgh.js",
		},
		"webpack": {
			webpack, "main.3f8a9c21.js img/logo.0a1b2c3d4e5f.png index.ab12cd34.css",
			"photo-20240131.jpg facade.js deadbeef.js main.js iphone15pro.jpg",
		},
		"esbuild": {esbuild, "app-ABCD23EF.js chunk-5INURTSO.js app-D8u1x1Ab.js", "photo-portrait.jpg jquery-3.7.1.min.js"},
		"hugo":    {[]HashedFolder{{"", Digest}}, "css/main.min." + strings.Repeat("0a1b2c3d", 8) + ".css", "css/main.0a1b2c3d.css"},
		"gatsby": {
			[]HashedFolder{{"static", EveryName}, {"", Hex}},
			"static/d/123.json app-0a1b2c3d4e5f60718293.js",
			"page-data/app-data.json sw.js",
		},
		"nothing known": {
			nil,
			"_next/static/chunks/main.js _next/static/css/3c.css _app/immutable/entry/start.js docs/_astro/hero.Dx2-_aZq.webp _astro/hoisted.js _nuxt/CxT5sdf_.js _nuxt/builds/meta/1.json base/_nuxt/a.png",
			"assets/index-BxYz12ab.js app.abcdef12.js _nuxt/builds/latest.json base/_nuxt/builds/latest.json _next/data/x.json",
		},
	} {
		w := &Writer{}
		w.Hashed(tt.folders, func(path string) bool { return path == "assets/copied-BxYz12ab.js" })
		for want, list := range map[bool]string{true: tt.yes, false: tt.no} {
			for path := range strings.FieldsSeq(list) {
				if got := w.immutable(File{Path: path, Type: MediaType(path)}); got != want {
					t.Errorf("%s: %s is immutable: %v", name, path, got)
				}
			}
		}
	}
}

// A release's manifest stores which files are immutable. Manifests of earlier versions can still be loaded.
func TestImmutableInManifest(t *testing.T) {
	t.Parallel()
	r := open(t)
	w := begin(t, r, "")
	w.Hashed([]HashedFolder{{"assets", Base64}}, nil)
	for _, path := range []string{"assets/a-BxYz12ab.js", "a.js"} {
		if err := w.Add(t.Context(), path, "", strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := r.Load(t.Context(), seal(t, w).ID)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"assets/a-BxYz12ab.js": true, "a.js": false} {
		if f, ok := tree.Lookup(path); !ok || f.Immutable != want {
			t.Errorf("%s: %+v", path, f)
		}
	}
	b := encode("", "", []File{{Path: "a", Type: plain, Body: Content{Size: 1}}}, []string{"k"})
	old := magic1 + strings.Replace(strings.TrimPrefix(string(b), magic), "\x00\x00", "\x00", 1) // without rules
	if tree, keys, err := decode([]byte(old)); err != nil || tree.Len() != 1 || keys != "\x01k" {
		t.Errorf("a release of the first version: %v", err)
	}
}
