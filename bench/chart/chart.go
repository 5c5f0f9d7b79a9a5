// Package chart draws the plots of the documents: rows of bars with their values,
// and lines with their names at the end.
//
// A picture is opaque, so that it reads the same on a light and on a dark page.
package chart

import (
	"bytes"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/slidingwindow/caddy-sliding-window/bench/report"
)

const (
	width  = 9 * vg.Inch
	margin = vg.Length(14) // on each side of a picture
	gap    = vg.Length(6)  // between a mark and its text
)

var (
	paper = color.RGBA{0xff, 0xff, 0xff, 0xff}
	ink   = color.RGBA{0x24, 0x29, 0x2f, 0xff} // of text
	faint = color.RGBA{0xd8, 0xde, 0xe4, 0xff} // of grids and frames
	// bar is that of bars: it is apart from paper, and ink from it.
	bar = color.RGBA{0x4a, 0x90, 0xc8, 0xff}
	// colors are those of series, each dark enough for text on paper.
	colors = []color.RGBA{
		{0x0b, 0x5f, 0xa5, 0xff},
		{0xb3, 0x40, 0x0a, 0xff},
		{0x0b, 0x6e, 0x4f, 0xff},
		{0x8a, 0x2c, 0x7a, 0xff},
		{0x7a, 0x4a, 0x00, 0xff},
		{0x50, 0x50, 0x50, 0xff},
		{0x5b, 0x4b, 0xb5, 0xff},
		{0xa0, 0x15, 0x3e, 0xff},
		{0x00, 0x6b, 0x7d, 0xff},
		{0x4f, 0x66, 0x00, 0xff},
	}
)

// The family that text is measured in, and the same with what a reader may have
// in its place: Arial has the same widths.
const (
	family   = "font-family:Liberation Sans;"
	families = "font-family:Liberation Sans,Arial,Helvetica,sans-serif;"
)

// letters returns a style of text, aligned at its left, and centred by height.
func letters(size vg.Length, c color.Color) text.Style {
	return text.Style{
		Color:   c,
		Font:    font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size),
		YAlign:  draw.YCenter,
		Handler: plot.DefaultTextHandler,
	}
}

// save writes a picture, in the format that the ending of its path names.
func save(path string, height vg.Length, paint func(draw.Canvas)) error {
	canvas, err := draw.NewFormattedCanvas(width, height, strings.TrimPrefix(filepath.Ext(path), "."))
	if err != nil {
		return err
	}
	c := draw.New(canvas)
	c.SetColor(paper)
	c.Fill(c.Rectangle.Path())
	paint(draw.Crop(c, margin, -margin, margin, -margin))
	var picture bytes.Buffer
	if _, err := canvas.WriteTo(&picture); err != nil {
		return err
	}
	data := bytes.ReplaceAll(picture.Bytes(), []byte(family), []byte(families))
	return os.WriteFile(path, data, 0o644) //nolint:gosec // for all to read
}

// heading writes the title and what the figures are, and returns the rest of the canvas.
func heading(c draw.Canvas, title, about string) draw.Canvas {
	big, small := letters(14, ink), letters(10, ink)
	big.YAlign, small.YAlign = draw.YTop, draw.YTop
	c.FillText(big, vg.Point{X: c.Min.X, Y: c.Max.Y}, title)
	c.FillText(small, vg.Point{X: c.Min.X, Y: c.Max.Y - 19}, about)
	return draw.Crop(c, 0, 0, 0, -headingHeight)
}

const headingHeight = vg.Length(40)

// ticks returns round numbers from 0 up to highest, at most n above 0.
func ticks(highest float64, n int) []float64 {
	if highest <= 0 || n < 1 {
		return []float64{0}
	}
	step := roundUp(highest / float64(n))
	if math.Floor(highest/step*(1+1e-9)) < 1 {
		step = roundDown(highest)
	}
	var all []float64
	for i := 0; float64(i)*step <= highest*(1+1e-9); i++ {
		all = append(all, float64(i)*step)
	}
	return all
}

// roundUp returns the least of 1, 2 and 5 times a power of ten that is not below v.
func roundUp(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// roundDown returns the greatest of 1, 2 and 5 times a power of ten that is not above v.
func roundDown(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)*(1+1e-12)))
	for _, m := range []float64{5, 2} {
		if m*power <= v*(1+1e-9) {
			return m * power
		}
	}
	return power
}

// label writes a round number in as few digits as it has.
func label(v float64) string {
	if v >= 1_000 {
		return report.Number(v)
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}
