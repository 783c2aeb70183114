/** The tone of a grade, which chooses its colour. */
export function tone(grade: string): "good" | "fair" | "bad" {
  if (grade.startsWith("A")) return "good";
  return grade === "B" || grade === "C" ? "fair" : "bad";
}
