package prepare

import (
	"bytes"
	"fmt"
	"image"
	_ "image/jpeg" // only its header parser is used
	_ "image/png"  // only its header parser is used
)

// encodedSize reads a file's header, so that a small file cannot make us
// allocate a large picture.
func encodedSize(data []byte) (w, h int, err error) {
	c, _, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return 0, 0, fmt.Errorf("neither JPEG nor PNG: %w", err)
	}
	return c.Width, c.Height, nil
}
