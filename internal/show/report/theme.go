package report

import (
	"fmt"
	"image/color"
	"strings"
)

// theme gives each ink its colour. Text inks and data inks have a contrast of
// at least 4.5 on paper and on bands (WCAG 2.1, 1.4.3); a test computes it.
type theme [inkCount]color.RGBA

func rgb(hex uint32) color.RGBA {
	return color.RGBA{R: uint8(hex >> 16), G: uint8(hex >> 8), B: uint8(hex), A: 255}
}

func lightTheme() theme {
	return theme{
		inkText: rgb(0x1b1f24), inkMuted: rgb(0x59636e), inkGrid: rgb(0xdfe3e8), inkBand: rgb(0xf3f5f8), inkPaper: rgb(0xffffff),
		inkBefore: rgb(0xb8420b), inkAfter: rgb(0x0a5fb4),
		inkIdle: rgb(0x59636e), inkDownload: rgb(0x0a5fb4), inkUpload: rgb(0xb8420b), inkBoth: rgb(0x7b3fb0), inkLoaded: rgb(0x1d6f42),
		inkGood: rgb(0x17693a), inkFair: rgb(0x8a5a00), inkBad: rgb(0xb3202a),
	}
}

func darkTheme() theme {
	return theme{
		inkText: rgb(0xe7eaee), inkMuted: rgb(0xa4adb8), inkGrid: rgb(0x2f363f), inkBand: rgb(0x1c2128), inkPaper: rgb(0x14181d),
		inkBefore: rgb(0xff9d5c), inkAfter: rgb(0x6fb8ff),
		inkIdle: rgb(0xa4adb8), inkDownload: rgb(0x6fb8ff), inkUpload: rgb(0xff9d5c), inkBoth: rgb(0xcf9cff), inkLoaded: rgb(0x6fd19a),
		inkGood: rgb(0x6fd19a), inkFair: rgb(0xf0c05a), inkBad: rgb(0xff8b8b),
	}
}

// hex prints a colour as CSS reads it.
func hex(c color.RGBA) string { return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B) }

// inkCSS returns the rules that give each ink its colour in a light and a dark
// surrounding: class fN fills with ink N, sN strokes with it. Colours are
// spelled out, because not every SVG reader knows CSS variables.
func inkCSS() string {
	rules := func(t theme) string {
		var b strings.Builder
		for i := inkText; i < inkCount; i++ {
			fmt.Fprintf(&b, ".f%d{fill:%s}.s%d{stroke:%s}", i, hex(t[i]), i, hex(t[i]))
		}
		return b.String()
	}
	return rules(lightTheme()) + "@media(prefers-color-scheme:dark){" + rules(darkTheme()) + "}"
}
