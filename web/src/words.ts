// How figures and phases are called.

/** A figure in ms without its unit: no decimals from 100 on. */
export function ms(v: number): string {
  return Math.abs(v) < 99.95 ? (Math.round(v * 10) / 10 + 0).toFixed(1) : v.toFixed(0);
}

/** A rate in Mbit/s without its unit, three digits. */
export function mbit(mbps: number): string {
  return mbps.toFixed(mbps >= 99.95 ? 0 : mbps >= 9.995 ? 1 : 2);
}

/** The heading of a phase. */
export const phaseWord: Record<string, string> = {
  idle: "Idle",
  download: "Download",
  upload: "Upload",
  both: "Both",
  loaded: "Loaded",
};

/** A sentence for each step of a test, for those who cannot see the charts. */
export const stepWords: Record<string, string> = {
  idle: "Measuring the idle line.",
  download: "Measuring while downloading.",
  upload: "Measuring while uploading.",
  both: "Measuring while downloading and uploading.",
  settle: "Waiting for the line to calm down.",
  judge: "Judging.",
};

/** The tone of a grade, which chooses its colour. */
export function tone(grade: string): "good" | "fair" | "bad" {
  if (grade.startsWith("A")) return "good";
  return grade === "B" || grade === "C" ? "fair" : "bad";
}
