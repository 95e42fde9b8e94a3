// Takes a picture of the dashboard on the demo camera: node screenshot.mjs FILE
import { startAppliance } from "./appliance.mjs";
import { launch } from "./launch.mjs";

const appliance = await startAppliance();
const browser = await launch();
try {
  const page = await browser.newPage({ viewport: { width: 1440, height: 810 }, colorScheme: "dark" });
  await page.goto(`${appliance.url}/`);
  await page.locator(".side tr[data-track]").nth(16).waitFor({ timeout: 60000 });
  // Trails are three seconds long.
  await page.waitForTimeout(6000);
  await page.screenshot({ path: process.argv[2], type: "jpeg", quality: 82 });
} finally {
  await browser.close();
  await appliance.stop();
}
