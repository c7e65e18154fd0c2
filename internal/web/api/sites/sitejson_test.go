package sites

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"

	"slipway/internal/web/api/contract"
)

// A page of sites has the same bytes as encoding/json's output, for any field values.
func TestAppendSitesIsWhatJSONMakes(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 300 {
		var p contract.Page[siteBody]
		fill(r, reflect.ValueOf(&p).Elem())
		var want bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		if p.Data == nil {
			p.Data = []siteBody{} // lists are never null
		}
		for i := range p.Data {
			if p.Data[i].Domains == nil {
				p.Data[i].Domains = []domainSummary{}
			}
			if p.Data[i].Tags == nil {
				p.Data[i].Tags = []string{}
			}
		}
		if err := enc.Encode(p); err != nil {
			t.Fatal(err)
		}
		got, err := contract.Encode(p)
		if err != nil || !bytes.Equal(got, want.Bytes()) {
			t.Fatalf("page %d: %v\n%s\nwant\n%s", n, err, got, &want)
		}
	}
}

// fill sets random values in every field; pointers and lists are sometimes empty.
func fill(r *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(r, v.Field(i))
		}
	case reflect.Pointer:
		if r.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem())
		}
	case reflect.Slice:
		for range r.IntN(4) {
			item := reflect.New(v.Type().Elem()).Elem()
			fill(r, item)
			v.Set(reflect.Append(v, item))
		}
	case reflect.String:
		v.SetString([]string{
			"", "plain text", `"quoted" \ <b>&amp;`, "naïve 網站 \u2028", "tab\tline\nzero\x00del\x7f",
			"broken \xff\xc3", "a\u00a0b",
		}[r.IntN(7)])
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Float64:
		v.SetFloat(r.Float64())
	default:
		v.SetInt(int64(r.IntN(2000) - 1000))
	}
}
