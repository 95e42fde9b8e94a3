package demo

import (
	"bytes"
	"testing"

	"github.com/vedette/vedette/appliance/demo/scene"
)

func TestTheEmbeddedClip(t *testing.T) {
	pictures, _, _, err := split(street)
	if err != nil {
		t.Fatal(err)
	}
	if len(pictures) != scene.Frames {
		t.Errorf("%d pictures, want %d", len(pictures), scene.Frames)
	}
	for i, p := range pictures {
		if p.idr != (i%scene.Rate == 0) {
			t.Errorf("picture %d: IDR is %v", i, p.idr)
		}
	}
	if len(street) > 4<<20 {
		t.Errorf("%d bytes are more than the 4 MiB it may have", len(street))
	}
}

func TestSplitKeepsSlicesOfOnePictureTogether(t *testing.T) {
	stream := []byte{
		0, 0, 0, 1, 0x67, 1, 0, 0, 1, 0x68, 2,
		0, 0, 1, 0x65, 0x88, 1, 0, 0, 1, 0x65, 0x48, 2, // two slices
		0, 0, 0, 1, 0x41, 0x9a, 3, 0, 0, 1, 0x41, 0x5a, 4,
		0, 0, 1, 0x06, 5, 0, 0, 1, 0x41, 0x9a, 6,
	}
	pictures, sps, pps, err := split(stream)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(sps, []byte{0x67, 1}) || !bytes.Equal(pps, []byte{0x68, 2}) {
		t.Errorf("parameter sets %x %x", sps, pps)
	}
	var sizes []int
	for _, p := range pictures {
		sizes = append(sizes, len(p.nalus))
	}
	if len(sizes) != 3 || sizes[0] != 4 || sizes[1] != 2 || sizes[2] != 2 {
		t.Errorf("units a picture: %v, want [4 2 2]", sizes)
	}
}

func FuzzSplit(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0x67, 1, 0, 0, 1, 0x68, 2, 0, 0, 1, 0x65, 0x88, 1})
	f.Add([]byte{0, 0, 1})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		pictures, sps, pps, err := split(b)
		if err != nil {
			return
		}
		if len(pictures) == 0 || len(sps) == 0 || len(pps) == 0 || !pictures[0].idr {
			t.Fatal("accepted what cannot be played")
		}
		total := 0
		for _, p := range pictures {
			if len(p.nalus) == 0 {
				t.Fatal("an empty picture")
			}
			for _, n := range p.nalus {
				if len(n) == 0 || bytes.Contains(n, []byte{0, 0, 1}) {
					t.Fatalf("unit %x is empty or holds a start code", n)
				}
				total += len(n) + 3
			}
		}
		if total > len(b) {
			t.Fatalf("%d bytes out of %d", total, len(b))
		}
	})
}
