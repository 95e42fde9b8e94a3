package cli

import "testing"

func TestPrivacyMasksAreReadFromTheCommandLine(t *testing.T) {
	masks, err := polygons("--privacy-mask", []string{"0,0_0.5,0_0.5,1", ""})
	if err != nil || len(masks) != 1 || len(masks[0].GetPoints()) != 3 || masks[0].GetPoints()[1].GetX() != 0.5 {
		t.Errorf("%v, %v", masks, err)
	}
	for _, bad := range []string{"0", "0,0_x,1", "0,0__1,1"} {
		if _, err := polygons("--privacy-mask", []string{bad}); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
