package thumbnail

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"
)

var (
	teal = color.NRGBA{0, 128, 128, 255}
	red  = color.NRGBA{200, 20, 30, 255}
)

func plain(w, h int, c color.Color) image.Image {
	img := image.NewNRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			img.Set(x, y, c)
		}
	}
	return img
}

func pngOf(img image.Image) []byte {
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func jpegOf(img image.Image) []byte {
	var b bytes.Buffer
	if err := jpeg.Encode(&b, img, nil); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func gifOf(img image.Image) []byte {
	var b bytes.Buffer
	if err := gif.Encode(&b, img, nil); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// icoOf puts images into an icon file.
func icoOf(images ...[]byte) []byte {
	out := binary.LittleEndian.AppendUint16([]byte{0, 0, 1, 0}, uint16(len(images)))
	at := 6 + 16*len(images)
	for _, b := range images {
		out = append(out, 0, 0, 0, 0, 1, 0, 32, 0)
		out = binary.LittleEndian.AppendUint32(out, uint32(len(b)))
		out = binary.LittleEndian.AppendUint32(out, uint32(at))
		at += len(b)
	}
	return append(out, bytes.Join(images, nil)...)
}

// bitmap is a square of one color as icon files hold it: bits per pixel, colors as
// blue, green, red, and a mask that hides the bottom row.
func bitmap(side, bits int, c color.NRGBA, alpha byte) []byte {
	le := binary.LittleEndian
	out := le.AppendUint32(nil, 40)
	out = le.AppendUint32(out, uint32(side))
	out = le.AppendUint32(out, uint32(2*side))
	out = le.AppendUint16(out, 1)
	out = le.AppendUint16(out, uint16(bits))
	out = append(out, make([]byte, 24)...)
	if bits <= 8 {
		for range 1 << bits {
			out = append(out, c.B, c.G, c.R, 0)
		}
	}
	line := make([]byte, (side*bits+31)/32*4)
	switch bits {
	case 24:
		for x := range side {
			copy(line[3*x:], []byte{c.B, c.G, c.R})
		}
	case 32:
		for x := range side {
			copy(line[4*x:], []byte{c.B, c.G, c.R, alpha})
		}
	}
	out = append(out, bytes.Repeat(line, side)...)
	mask := make([]byte, (side+31)/32*4)
	hidden := bytes.Repeat([]byte{0xff}, len(mask))
	return append(append(out, hidden...), bytes.Repeat(mask, side-1)...)
}

func filesOf(page string, files map[string][]byte) Files {
	return Files{
		Page: func(limit int64) []byte { return []byte(page)[:min(int64(len(page)), limit)] },
		File: func(path string, limit int64) []byte {
			if b := files[path]; int64(len(b)) <= limit {
				return b
			}
			return nil
		},
	}
}

// look decodes an icon of ours and returns the color of its middle.
func look(t *testing.T, icon []byte) color.NRGBA {
	t.Helper()
	img, err := png.Decode(bytes.NewReader(icon))
	if err != nil {
		t.Fatal("the icon is no PNG:", err)
	}
	if b := img.Bounds(); b.Dx() != IconSize || b.Dy() != IconSize {
		t.Fatal("the icon measures", b)
	}
	return color.NRGBAModel.Convert(img.At(IconSize/2, IconSize/2)).(color.NRGBA)
}

func near(a, b color.NRGBA) bool {
	d := func(x, y uint8) bool { return max(x, y)-min(x, y) <= 32 }
	return d(a.R, b.R) && d(a.G, b.G) && d(a.B, b.B) && d(a.A, b.A)
}

func TestThumbnail(t *testing.T) {
	t.Parallel()
	p := Of(context.Background(), filesOf(`<!doctype html><html><head><svg><title>no</title></svg>
		<TITLE> Harbor &amp; Journal
		</TITLE><meta NAME=description content="News from the&nbsp;quay.">
		<meta name="theme-color" media="(prefers-color-scheme: dark)" content="#111"><meta name="theme-color" content=" RGB(10, 120,200) ">
		<meta property="og:image" content="https://harbor.example/img/cover%20art.jpg?v=2">
		<link rel="shortcut icon" href="small.png" sizes="16x16"><link rel=icon href=/img/large.png sizes="192x192 512x512">
		<body><h1>Welcome <em>ashore</em></h1><title>late</title>`,
		map[string][]byte{
			"img/cover art.jpg": jpegOf(plain(1200, 630, red)),
			"small.png":         pngOf(plain(16, 16, red)),
			"img/large.png":     pngOf(plain(192, 192, teal)),
		}))
	if p.Title != "Harbor & Journal" || p.Text != "News from the quay." || p.Color != "#0a78c8" {
		t.Errorf("%q, %q, %s", p.Title, p.Text, p.Color)
	}
	if c := look(t, p.Icon); !near(c, teal) {
		t.Errorf("the icon is %v", c)
	}
	img, err := jpeg.Decode(bytes.NewReader(p.Image))
	if err != nil || img.Bounds() != image.Rect(
		0,
		0,
		ImageWidth,
		ImageHeight,
	) || !near(color.NRGBAModel.Convert(img.At(9, 9)).(color.NRGBA), red) {
		t.Errorf("the picture: %v", err)
	}
}

func TestSources(t *testing.T) {
	t.Parallel()
	blue := color.NRGBA{30, 60, 220, 255}
	icon := pngOf(plain(32, 32, blue))
	for name, tt := range map[string]struct {
		page  string
		files map[string][]byte
		want  Thumbnail // Icon and Image: whether there are some
	}{
		"nothing":          {"", nil, Thumbnail{}},
		"no page of words": {"\x00\xff<<<>>><title", nil, Thumbnail{}},
		"a heading":        {"<h1>\n Hello <b>there</b></h1>", nil, Thumbnail{Title: "Hello there", Text: "Hello there"}},
		"og words": {
			`<meta property=og:title content=Shop><meta property=og:description content="We sell">`,
			nil,
			Thumbnail{Title: "Shop", Text: "We sell"},
		},
		"by custom": {
			"<title>x</title>",
			map[string][]byte{"favicon.ico": icoOf(icon)},
			Thumbnail{Title: "x", Color: "#1e3cdc", Icon: icon},
		},
		"touch icon": {
			"<title>x</title>",
			map[string][]byte{"apple-touch-icon.png": icon},
			Thumbnail{Title: "x", Color: "#1e3cdc", Icon: icon},
		},
		"data": {
			`<link rel=icon href="data:image/png;base64,` + base64.StdEncoding.EncodeToString(icon) + `">`,
			nil,
			Thumbnail{Color: "#1e3cdc", Icon: icon},
		},
		"manifest": {
			`<link rel=manifest href=/app/site.webmanifest>`,
			map[string][]byte{
				"app/site.webmanifest": []byte(`{"name":"App","theme_color":"tomato","icons":[{"src":"i.png","sizes":"32x32"}]}`),
				"app/i.png":            icon,
			},
			Thumbnail{Title: "App", Color: "#ff6347", Icon: icon},
		},
		"broken first": {
			`<link rel=icon href=a.png><link rel=icon href=b.png>`,
			map[string][]byte{"a.png": icon[:60], "b.png": icon},
			Thumbnail{Color: "#1e3cdc", Icon: icon},
		},
		"a wrong name": {`<link rel=icon href=a.svg>`, map[string][]byte{"a.svg": icon}, Thumbnail{Color: "#1e3cdc", Icon: icon}},
		"another host's": {
			`<link rel=icon href="//cdn.example/i.png"><meta property=og:image content=javascript:alert(1)>`,
			nil,
			Thumbnail{},
		},
		"upwards": {
			`<link rel=icon href="../../../etc/i.png">`,
			map[string][]byte{"etc/i.png": icon},
			Thumbnail{Color: "#1e3cdc", Icon: icon},
		},
		"a logo for og": {
			`<meta property=og:image content=/logo.png>`,
			map[string][]byte{"logo.png": pngOf(plain(500, 500, red))},
			Thumbnail{},
		},
		"white is no color": {`<meta name=theme-color content=white>`, nil, Thumbnail{}},
		"dark is one":       {`<meta name=theme-color content=#0a0a0b>`, nil, Thumbnail{Color: "#0a0a0b"}},
		"vivid before grey": {
			`<meta name=theme-color content=#222><link rel=icon href=i.png>`,
			map[string][]byte{"i.png": icon},
			Thumbnail{Color: "#1e3cdc", Icon: icon},
		},
		"no color": {
			`<meta name=theme-color content="url(x)"><meta name=theme-color content="#12"><meta name=theme-color content="rgb(NaN,1,2)">`,
			nil,
			Thumbnail{},
		},
		"marks of direction":  {"<title>a\u202eb\u200bc\x07 \u2066d</title>", nil, Thumbnail{Title: "abc d"}},
		"markup in the title": {"<title><script>alert(1)</script></title>", nil, Thumbnail{Title: "<script>alert(1)</script>"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := Of(context.Background(), filesOf(tt.page, tt.files))
			if p.Title != tt.want.Title || p.Text != tt.want.Text || p.Color != tt.want.Color || (p.Icon == nil) != (tt.want.Icon == nil) ||
				(p.Image == nil) != (tt.want.Image == nil) {
				t.Errorf("%q, %q, %s, icon %d, image %d", p.Title, p.Text, p.Color, len(p.Icon), len(p.Image))
			}
			if p.Icon != nil && !near(look(t, p.Icon), blue) {
				t.Errorf("the icon is %v", look(t, p.Icon))
			}
		})
	}
	long := Of(context.Background(), filesOf("<title>"+strings.Repeat("ä", 5000)+"</title>", nil))
	if n := len([]rune(long.Title)); n != 80 {
		t.Errorf("the title has %d characters", n)
	}
}

func TestIcons(t *testing.T) {
	t.Parallel()
	half := image.NewNRGBA(image.Rect(0, 0, 64, 32))
	for i := range half.Pix {
		half.Pix[i] = []byte{red.R, red.G, red.B, 255}[i%4]
	}
	for name, b := range map[string][]byte{
		"png":                          pngOf(plain(64, 64, red)),
		"wide":                         pngOf(half),
		"tall":                         pngOf(plain(10, 400, red)),
		"jpeg":                         jpegOf(plain(64, 64, red)),
		"gif":                          gifOf(plain(64, 64, red)),
		"one pixel":                    pngOf(plain(1, 1, red)),
		"ico of png":                   icoOf(pngOf(plain(48, 48, red))),
		"ico of 32 bits":               icoOf(bitmap(32, 32, red, 255)),
		"ico of 32 bits without alpha": icoOf(bitmap(32, 32, red, 0)),
		"ico of 24 bits":               icoOf(bitmap(32, 24, red, 0)),
		"ico of 8 bits":                icoOf(bitmap(16, 8, red, 0)),
		"ico of 4 bits":                icoOf(bitmap(16, 4, red, 0)),
		"ico of 1 bit":                 icoOf(bitmap(16, 1, red, 0)),
		"the largest of an ico":        icoOf(bitmap(16, 32, teal, 255), bitmap(48, 32, red, 255), bitmap(32, 32, teal, 255)),
	} {
		img := decode(context.Background(), b)
		if img == nil {
			t.Errorf("%s is not read", name)
			continue
		}
		if c := look(t, encodeIcon(img)); !near(c, red) {
			t.Errorf("%s: %v", name, c)
		}
	}
	img := decode(context.Background(), icoOf(bitmap(32, 24, red, 0)))
	if _, _, _, a := img.At(3, 31).RGBA(); a != 0 {
		t.Error("what the mask hides is there")
	}
}

// huge is a PNG whose header promises more than any memory holds.
func huge(w, h uint32) []byte {
	b := pngOf(plain(1, 1, red))
	binary.BigEndian.PutUint32(b[16:], w)
	binary.BigEndian.PutUint32(b[20:], h)
	binary.BigEndian.PutUint32(b[29:], crc32.ChecksumIEEE(b[12:29]))
	return b
}

func TestRefused(t *testing.T) {
	t.Parallel()
	good := pngOf(plain(64, 64, red))
	for name, b := range map[string][]byte{
		"nothing":              nil,
		"text":                 []byte("<html>"),
		"cut off":              good[:len(good)/2],
		"no pixels":            huge(0, 5),
		"huge":                 huge(60000, 60000),
		"long":                 huge(1<<31-1, 1),
		"many pixels":          huge(8000, 8000),
		"svg":                  []byte(`<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`),
		"an empty ico":         icoOf(),
		"an ico of nothing":    icoOf(nil, []byte("x")),
		"an ico that lies":     append(icoOf(good)[:14], 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0x7f),
		"a huge png in an ico": icoOf(huge(60000, 60000)),
		"a huge bitmap": icoOf(append(binary.LittleEndian.AppendUint32(
			binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, 40), 1<<30),
			1<<31-2,
		), make([]byte, 100)...)),
	} {
		if img := decode(context.Background(), b); img != nil {
			t.Errorf("%s became a picture of %v", name, img.Bounds())
		}
	}
}

// Whatever a site's files hold: the title is one clean line, the color is #rrggbb, the
// icon is a PNG of our measures or a checked SVG, and nothing else of the bytes is handed on.
func FuzzThumbnail(f *testing.F) {
	f.Add(
		"<title>x</title><link rel=icon href=/i><meta property=og:image content=/i><meta name=theme-color content=#123>",
		pngOf(plain(300, 200, red)),
	)
	f.Add("<link rel=manifest href=i><link rel=icon href=data:image/png;base64,AAAA>", []byte(`{"icons":[{"src":"i"}]}`))
	f.Add("<svg><title>", icoOf(bitmap(16, 8, red, 0), pngOf(plain(3, 3, teal))))
	f.Add("<h1>", gifOf(plain(20, 20, red)))
	f.Add("", jpegOf(plain(20, 20, red)))
	f.Fuzz(func(t *testing.T, page string, file []byte) {
		p := Of(context.Background(), Files{
			Page: func(int64) []byte { return []byte(page) },
			File: func(string, int64) []byte { return file },
		})
		if strings.ContainsAny(p.Title+p.Text, "\n\r\t\x00\u202e") || len([]rune(p.Title)) > 80 || len([]rune(p.Text)) > 200 {
			t.Errorf("%q, %q", p.Title, p.Text)
		}
		if p.Color != "" && (len(p.Color) != 7 || p.Color[0] != '#' || strings.Trim(p.Color[1:], "0123456789abcdef") != "") {
			t.Errorf("color %q", p.Color)
		}
		if p.Icon != nil && IconType(p.Icon) == "image/svg+xml" {
			if !harmlessSVG(p.Icon) {
				t.Errorf("an unchecked SVG: %q", p.Icon)
			}
		} else if p.Icon != nil {
			look(t, p.Icon)
		}
		if p.Image != nil {
			if c, err := jpeg.DecodeConfig(bytes.NewReader(p.Image)); err != nil || c.Width != ImageWidth || c.Height != ImageHeight {
				t.Error(c, err)
			}
		}
	})
}

// scans is a progressive JPEG of n scans, each of which says in ten bytes that all blocks
// of the image are zero: the work is n times the size of the image.
func scans(side, n int) []byte {
	be := binary.BigEndian
	out := []byte{0xff, 0xd8}
	segment := func(marker byte, body ...byte) {
		out = be.AppendUint16(append(out, 0xff, marker), uint16(len(body)+2))
		out = append(out, body...)
	}
	segment(0xdb, append([]byte{0}, bytes.Repeat([]byte{1}, 64)...)...) // quantization table 0
	segment(0xc2, 8, byte(side>>8), byte(side), byte(side>>8), byte(side), 1, 1, 0x11, 0)
	counts := make([]byte, 16)
	counts[0] = 1
	segment(0xc4, append(append([]byte{0x00}, counts...), 0x00)...) // DC: one code, no bits follow
	segment(0xc4, append(append([]byte{0x10}, counts...), 0xe0)...) // AC: a run of 2^14 blocks
	for range n {
		segment(0xda, 1, 1, 0, 1, 63, 0)
		out = append(out, 0, 0, 0, 0)
	}
	return append(out, 0xff, 0xd9)
}

// An image of more scans than encoders write, or of more than its size allows, isn't decoded.
func TestScansAreBounded(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]bool{1: true, maxScans: true, maxScans + 1: false} {
		if img := decode(t.Context(), scans(64, n)); (img != nil) != want {
			t.Errorf("%d scans: decoded %v, want %v", n, img != nil, want)
		}
	}
	for n, want := range map[int]bool{10: true, 18: false} { // of a large picture
		if got := drawable(scans(2400, n), image.Config{Width: 2400, Height: 2400}); got != want {
			t.Errorf("%d scans of 2400 pixels square: drawable %v, want %v", n, got, want)
		}
	}
}

// An image that would be decoded forever is abandoned when ctx ends.
func TestEndlessImage(t *testing.T) {
	t.Parallel()
	b := scans(2400, 300_000)
	if c, err := jpeg.DecodeConfig(bytes.NewReader(b)); err != nil || c.Width != 2400 {
		t.Fatal(c, err)
	}
	if img := decode(context.Background(), scans(64, 3)); img == nil {
		t.Fatal("three such scans are no image, so the test shows nothing")
	}
	ctx, cancel := context.WithCancel(context.Background())
	read := 0
	f := Files{
		Page: func(int64) []byte { return []byte(`<title>x</title><meta property=og:image content=/a.jpg>`) },
		File: func(path string, _ int64) []byte {
			if path != "a.jpg" {
				return nil
			}
			read++
			cancel()
			return b
		},
	}
	if p := Of(ctx, f); p.Title != "x" || p.Image != nil || read != 1 {
		t.Errorf("%q, image of %d bytes, %d reads", p.Title, len(p.Image), read)
	}
	patience := &patient{context.Background(), b}
	for n, total := 0, 0; total < 1024; total += n {
		var err error
		if n, err = patience.Read(make([]byte, 4096)); err != nil || n > 256 {
			t.Fatal(n, err)
		}
	}
}
