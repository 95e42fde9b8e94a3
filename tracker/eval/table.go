package eval

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// columns are the figures in the order of every table, HOTA first.
func (f *Figures) columns() (names []string, ratios []float64, counts []int) {
	return []string{
			"HOTA", "DetA", "AssA", "LocA", "MOTA", "MOTP", "IDF1", "IDP", "IDR",
			"IDSW", "Frag", "TP", "FP", "FN", "MT", "PT", "ML", "GT",
		},
		[]float64{f.HOTA, f.DetA, f.AssA, f.LocA, f.MOTA, f.MOTP, f.IDF1, f.IDP, f.IDR},
		[]int{f.IDSW, f.Frag, f.TP, f.FP, f.FN, f.MT, f.PT, f.ML, f.GT}
}

// WriteTable writes one line a sequence, for people and for awk.
func WriteTable(w io.Writer, figures []Figures) error {
	width := len("SEQUENCE")
	for i := range figures {
		width = max(width, len(figures[i].Name))
	}
	names, _, _ := new(Figures).columns()
	var text strings.Builder
	fmt.Fprintf(&text, "%-*s", width, "SEQUENCE")
	for _, name := range names {
		fmt.Fprintf(&text, " %8s", name)
	}
	text.WriteByte('\n')
	for i := range figures {
		_, ratios, counts := figures[i].columns()
		fmt.Fprintf(&text, "%-*s", width, figures[i].Name)
		for _, v := range ratios {
			fmt.Fprintf(&text, " %8.4f", v)
		}
		for _, n := range counts {
			fmt.Fprintf(&text, " %8d", n)
		}
		text.WriteByte('\n')
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// WriteCSV writes the table with a header line.
func WriteCSV(w io.Writer, figures []Figures) error {
	names, _, _ := new(Figures).columns()
	out := csv.NewWriter(w)
	if err := out.Write(append([]string{"sequence"}, names...)); err != nil {
		return err
	}
	for i := range figures {
		record := []string{figures[i].Name}
		_, ratios, counts := figures[i].columns()
		for _, v := range ratios {
			record = append(record, strconv.FormatFloat(v, 'f', 4, 64))
		}
		for _, n := range counts {
			record = append(record, strconv.Itoa(n))
		}
		if err := out.Write(record); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// WriteJSON writes figures of any kind, indented.
func WriteJSON(w io.Writer, figures any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(figures)
}
