package probe

// First is closed at the first picture.
func (l *look) First() <-chan struct{} { return l.first }
