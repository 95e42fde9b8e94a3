package bitstream

import (
	"fmt"

	"github.com/bluenviron/mediacommon/v2/pkg/codecs/h264"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/h265"

	"github.com/vedette/vedette/ingest"
)

// describe reads the SPS. A damaged one changes nothing: the decoder has the last word.
func (a *Assembler) describe() {
	switch a.codec {
	case ingest.H264:
		var s h264.SPS
		if s.Unmarshal(a.first(0)) != nil {
			return
		}
		a.current.Width, a.current.Height = s.Width(), s.Height()
		a.current.Profile = fmt.Sprintf("%s %d.%d", profileH264(s.ProfileIdc), s.LevelIdc/10, s.LevelIdc%10)
	case ingest.H265:
		var s h265.SPS
		if s.Unmarshal(a.first(1)) != nil {
			return
		}
		a.current.Width, a.current.Height = s.Width(), s.Height()
		level := s.ProfileTierLevel.GeneralLevelIdc
		a.current.Profile = fmt.Sprintf("%s %d.%d", profileH265(s.ProfileTierLevel.GeneralProfileIdc), level/30, level%30/3)
	default:
	}
}

func profileH264(idc uint8) string {
	switch idc {
	case 66:
		return "Baseline"
	case 77:
		return "Main"
	case 88:
		return "Extended"
	case 100:
		return "High"
	case 110:
		return "High 10"
	case 122:
		return "High 4:2:2"
	case 244:
		return "High 4:4:4"
	default:
		return fmt.Sprintf("profile %d", idc)
	}
}

func profileH265(idc uint8) string {
	switch idc {
	case 1:
		return "Main"
	case 2:
		return "Main 10"
	case 3:
		return "Main Still Picture"
	case 4:
		return "Range Extensions"
	default:
		return fmt.Sprintf("profile %d", idc)
	}
}
