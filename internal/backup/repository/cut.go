package repository

// gear holds the values of the rolling hash that cuts content (FastCDC, Xia et al. 2016):
// where it is cut depends on the bytes around, so that an insertion moves no later cut.
var gear = func() (t [256]uint64) {
	x := uint64(0x9e3779b97f4a7c15)
	for i := range t { // splitmix64: any fixed random values do, for ever the same
		x += 0x9e3779b97f4a7c15
		z := x
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		t[i] = z ^ z>>31
	}
	return t
}()

// cut returns the length of the next piece of b.
func cut(b []byte) int {
	if len(b) <= minPiece {
		return len(b)
	}
	b = b[:min(len(b), MaxPiece)]
	i, from := minPiece, minPiece
group:
	for ; i+4*lane <= len(b); i += 4 * lane {
		// Each step of the hash waits for the one before. It knows the last 64 bytes alone, so that
		// it can begin at four places, and the processor works at the four steps at once.
		h0, h1, h2, h3 := rolled(b, from, i), rolled(b, from, i+lane), rolled(b, from, i+2*lane), rolled(b, from, i+3*lane)
		b0, b1, b2, b3 := (*[lane]byte)(b[i:]), (*[lane]byte)(b[i+lane:]), (*[lane]byte)(b[i+2*lane:]), (*[lane]byte)(b[i+3*lane:])
		for k := range lane {
			h0, h1, h2, h3 = h0<<1+gear[b0[k]], h1<<1+gear[b1[k]], h2<<1+gear[b2[k]], h3<<1+gear[b3[k]]
			if h0&cutMask == 0 || h1&cutMask == 0 || h2&cutMask == 0 || h3&cutMask == 0 {
				break group // what follows finds the first of them
			}
		}
	}
	for h := rolled(b, from, i); i < len(b); i++ {
		h = h<<1 + gear[b[i]]
		if h&cutMask == 0 {
			return i + 1
		}
	}
	return len(b)
}

// Where the hash has zeros content is cut: once per MiB. Its high bits know the last 64 bytes.
const cutMask = uint64(1<<20-1) << 44

// lane is how many bytes are hashed from one of four places on.
const lane = 1 << 10

// rolled returns the hash of what lies before b[i], from b[from] on.
func rolled(b []byte, from, i int) (h uint64) {
	for _, c := range b[max(from, i-64):i] {
		h = h<<1 + gear[c]
	}
	return h
}
