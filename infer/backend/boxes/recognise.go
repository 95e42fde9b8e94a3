package boxes

import "github.com/vedette/vedette/infer/tensor"

// Recognised is what the outputs of a detector tell about it.
type Recognised struct {
	Family string
	// Classes is how many it tells apart; 0: its labels are numbers.
	Classes int
}

// Recognise finds the family of a detector by its answer to one picture: the outputs' names, types and shapes, whose
// values are not looked at. Family, when given, and size, the width and height of its input, decide where the outputs
// leave a choice. The error names the choices.
func Recognise(outputs []tensor.Tensor, family string, size [2]int) (Recognised, error) {
	var heads []head
	for _, t := range outputs {
		heads = append(heads, head{name: t.Name, typ: t.DataType, shape: strip(t.Shape)})
	}
	p, err := recognise(heads, family, size)
	if err != nil {
		return Recognised{}, err
	}
	return Recognised{Family: p.family.name, Classes: p.classes}, nil
}
