package prepare

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/vedette/vedette/internal/pixels"
)

// tiling cuts a large picture into several that overlap, so that small objects keep
// enough pixels for the network. The zero value is one picture: the whole.
type tiling struct {
	columns, rows int
	overlap       float64 // share of a tile's side that it has in common with its neighbour
	whole         bool    // the whole picture comes last, for what no tile holds
}

// maxTiles bounds the batch that one frame becomes.
const maxTiles = 64

// parseTiling reads the parameters tiles (COLUMNSxROWS), tile_overlap and tile_whole.
func parseTiling(get func(key, def string) string, batching bool) (tiling, error) {
	whole := get("tile_whole", "true")
	t := tiling{whole: whole == "true"}
	var faults []error
	if !t.whole && whole != "false" {
		faults = append(faults, fmt.Errorf("parameters[tile_whole]: %q is neither true nor false", whole))
	}
	var err error
	overlap := get("tile_overlap", "0.2")
	if t.overlap, err = strconv.ParseFloat(overlap, 64); err != nil || !(t.overlap >= 0 && t.overlap <= 0.5) {
		faults = append(faults, fmt.Errorf("parameters[tile_overlap]: %q is not within 0 and 0.5", overlap))
	}
	v := get("tiles", "")
	if v == "" {
		return tiling{}, errors.Join(faults...)
	}
	c, r, two := strings.Cut(v, "x")
	var errC, errR error
	t.columns, errC = strconv.Atoi(c)
	t.rows, errR = strconv.Atoi(r)
	switch {
	case !two || errC != nil || errR != nil || t.columns < 1 || t.rows < 1 || t.columns > maxTiles || t.rows > maxTiles || t.count() > maxTiles:
		faults = append(faults, fmt.Errorf("parameters[tiles]: %q is not COLUMNSxROWS with at most %d tiles", v, maxTiles))
	case !batching:
		faults = append(faults, errors.New("parameters[tiles]: tiles come out as a batch: set max_batch_size to 1 or more"))
	}
	return t, errors.Join(faults...)
}

// count is the number of pictures a frame becomes.
func (t *tiling) count() int {
	n := t.columns * t.rows
	if n == 0 || t.whole {
		n++
	}
	return n
}

// tile is number i of the tiles of area, row by row; the whole is the last.
func (t *tiling) tile(i int, area pixels.Rect) pixels.Rect {
	if i >= t.columns*t.rows {
		return area
	}
	x, w := slice(i%t.columns, t.columns, area.W, t.overlap)
	y, h := slice(i/t.columns, t.rows, area.H, t.overlap)
	return pixels.Rect{X: area.X + x, Y: area.Y + y, W: w, H: h}
}

// slice is number i of n equal parts of length that overlap.
func slice(i, n, length int, overlap float64) (at, size int) {
	size = min(length, int(math.Ceil(float64(length)/(float64(n)-float64(n-1)*overlap))))
	if n > 1 {
		at = i * (length - size) / (n - 1)
	}
	return at, size
}
