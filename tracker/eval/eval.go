// Package eval measures how well objects are detected and followed, in the
// figures that the field compares by: HOTA, CLEAR MOT, identity scores and
// average precision, on files of the MOTChallenge.
package eval
